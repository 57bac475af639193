"""Predefined templates: examples get their id, others do not; whose code speaks; sites extend the data."""

import pytest

from ml.templates.alerts import alert_of
from ml.templates.library import Library, grown
from ml.templates.masking import mask
from ml.templates.predefined import default, parse, predefined_of, provenance_of, rules_of

ENTRIES = default().predefined
EXAMPLES = [(entry, text) for entry in ENTRIES for text in entry.examples]
OTHERS = [(entry, text) for entry in ENTRIES for text in entry.others]


def id_of(text):
    library = grown(Library(), [mask(text)])
    return library.messages[mask(text)]


@pytest.mark.parametrize(("entry", "text"), EXAMPLES, ids=lambda v: getattr(v, "template_id", ""))
def test_an_example_gets_its_id(entry, text):
    assert id_of(text).startswith(entry.template_id.split("{")[0])


@pytest.mark.parametrize(("entry", "text"), OTHERS, ids=lambda v: getattr(v, "template_id", ""))
def test_what_is_something_else_does_not(entry, text):
    assert not id_of(text).startswith(entry.template_id.split("{")[0]) or id_of(text).startswith(entry.template_id + ".")


def test_every_entry_has_an_example_and_ids_are_distinct():
    assert [entry.template_id for entry in ENTRIES if not entry.examples] == []
    assert len({entry.template_id for entry in ENTRIES}) == len(ENTRIES)


def test_the_alert_of_an_entry_is_what_the_rules_say_of_its_examples():
    # an entry may be more exact than the rules, but not silent where they speak
    silent = [(e.template_id, t) for e, t in EXAMPLES if e.alert is None and alert_of(mask(t)) not in (None, "exit_code", "signal")]
    assert silent == []


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("torch.distributed.elastic.agent: starting workers", "launcher"),
        ("NVRM: Xid (<*>): 79", "platform"),
        ("NCCL INFO Channel <*>", "framework"),
        ("opening shard <*>", "user"),
    ],
)
def test_whose_code_speaks(text, source):
    assert provenance_of([text]) == [source]


def test_a_site_comes_first_and_keeps_the_rest():
    rules = rules_of("predefined: [{id: site.x, template: 'x', pattern: '(?i)cuda out of memory', provenance: platform}]")
    assert predefined_of(["CUDA out of memory. Tried to allocate <*>"], rules)[0].template_id == "site.x"
    assert len(rules.predefined) == len(ENTRIES) + 1


@pytest.mark.parametrize(
    "text",
    [
        "- 1", "predefined: [{id: a}]", "predefined: [{id: a, template: b, pattern: '('}]", "predefined: 5", "provenance: [5]",
        "provenance: [{pattern: '('}]", "alerts: {a: 1}", "!!python/object/apply:os.getcwd []", "a: [",
    ],
)  # fmt: skip
def test_rules_that_cannot_be_used_are_refused(text):
    with pytest.raises(ValueError):
        parse(text)
