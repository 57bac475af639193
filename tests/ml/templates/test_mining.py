"""Templates from masked messages: what must stay apart, what must meet, and that only the set of messages counts."""

import random

import pytest

from ml.templates.library import Library, grown
from ml.templates.masking import mask
from ml.templates.mining import mine, template_id
from ml.templates.tokens import essence, tokens_of

PAIRS = [
    # training logs: one word decides what happened
    ("WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8)", "WorkNCCL(SeqNum=13, OpType=ALLGATHER, NumelIn=8)"),
    ("WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8)", "WorkNCCL(SeqNum=12, OpType=_ALLGATHER_BASE, NumelIn=8)"),
    ("Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0", "Channel 01/0 : 0[0] -> 1[1] [receive] via NET/IB/0"),
    ("built index in 3.5 s", "building index in 3.5 s"),
    ("built shard 3 of 8", "building shard 4 of 8"),
    ("Timed out waiting 1800000ms for send operation to complete", "Timed out waiting 1800000ms for recv operation to complete"),
    ("rank 3 entered barrier 7", "rank 4 left barrier 7"),
    ("loading checkpoint from /a/b/c at iteration 5", "saving checkpoint to /a/b/c at iteration 5"),
    ("worker 3 started", "worker 3 stopped"),
    ("link 3 is up", "link 4 is down"),
    ("dataloader resumed at sample 100", "dataloader paused at sample 100"),
    ("group dp ready with 8 ranks", "group tp ready with 8 ranks"),
    ("exited with exit code 0", "exited with exit code 1"),
    ("failed (exitcode: -9) local_rank: 0 (pid: 31)", "failed (exitcode: -11) local_rank: 1 (pid: 32)"),
    ("Xid (PCI:0000:05:00): 79, lost", "Xid (PCI:0000:06:00): 31, lost"),
    ("validation loss at step 5: 3.5", "training loss at step 5: 3.5"),
    ("overflow=true scale=1024", "overflow=false scale=2048"),
    ("FileNotFoundError: no shard in /a/b/c", "PermissionError: no shard in /a/b/c"),
    ("device lost power at 12:00:01", "device gained power at 12:00:01"),
]
ALIKE = [
    ("rank 3 finished step 10 in 4.5 s", "rank 11 finished step 2000 in 41 s"),
    ("session opened for user ann by (uid=0)", "session opened for user bob by (uid=0)"),
    ("delete blk_1", "delete blk_1 blk_22 blk_333"),
    ("connected to gpu-c330:29500", "connected to gpu-c101:29501"),
    ("open /data/a/1.bin", "open /mnt/b/c/2.bin"),
    ("name=com.example.app.Main done", "name=org.other.lib.Run done"),
    ("tag=\"View Lock\" flags=0x1", "tag=\"RILJ\" flags=0x2"),
    ("rhost= tty=ssh", "rhost=10.0.0.1 tty=ssh"),
]  # fmt: skip


def template_of(message, others):
    library = grown(Library(), [mask(m) for m in (message, *others)])
    return library.messages[mask(message)]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_messages_that_say_different_things_are_different_templates(one, other):
    assert template_of(one, [other]) != template_of(other, [one])


def test_all_pairs_stay_apart_when_they_are_mined_together():
    everything = [message for pair in PAIRS for message in pair]
    library = grown(Library(), map(mask, everything))
    assert [pair for pair in PAIRS if library.messages[mask(pair[0])] == library.messages[mask(pair[1])]] == []


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_messages_that_differ_by_values_are_one_template(one, other):
    assert template_of(one, [other]) == template_of(other, [one])


def test_a_position_with_many_words_is_a_variable():
    words = ["echo", "time", "ftp", "telnet", "rsync", "printer"]
    assert set(mine([f"removing {word}" for word in words]).texts.values()) == {"removing <*>"}
    assert len(set(mine([f"removing {word}" for word in words[:5]]).texts.values())) == 5


def test_order_and_repetition_do_not_count():
    messages = [mask(m) for pair in (*PAIRS, *ALIKE) for m in pair]
    whole = grown(Library(), messages)
    for seed in range(5):
        shuffled = random.Random(seed).choices(messages, k=200) + random.Random(seed).sample(messages, len(messages))
        assert grown(Library(), shuffled) == whole
    assert grown(whole, messages) == whole
    assert all(t.is_predefined or name == template_id(t.text) for name, t in whole.templates.items())


def test_a_message_of_a_known_template_is_mapped_to_it_and_changes_nothing():
    first = grown(Library(), [f"removing {w}" for w in ("echo", "time", "ftp", "telnet", "rsync", "printer")])
    second = grown(first, ["removing klogin", "removing <*>"])
    assert second.templates == first.templates
    assert second.messages["removing klogin"] == template_id("removing <*>")


def test_ids_of_all_nights_stay_reachable():
    nights = [["removing echo", "removing time"], ["removing ftp", "removing telnet", "removing rsync"], ["removing printer"]]
    library, given = Library(), set()
    for night in nights:
        library = grown(library, night)
        given |= library.templates.keys()
    assert set(library.templates) == {template_id("removing <*>")}
    assert library.aliases == dict.fromkeys(given, template_id("removing <*>"))
    assert len(given) == 6


def test_alerts_are_never_in_one_template_with_what_is_none():
    quiet, loud = "step <*> took <*> s, loss <*> fine", "step <*> took <*> s, loss nan fine"
    library = grown(Library(), [quiet, loud])
    assert {library.templates[library.messages[m]].alert for m in (quiet, loud)} == {None, "non_finite"}


def test_a_traceback_is_known_by_its_exception():
    one = 'Traceback (most recent call last):\n File "<*>", line <*>, in main\n train()\nRuntimeError: shapes differ'
    other = (
        'Traceback (most recent call last):\n File "<*>", line <*>, in f\n File "<*>", line <*>, in g\nRuntimeError: shapes differ'
    )
    assert essence(one) == "Traceback (most recent call last): <*> RuntimeError: shapes differ"
    assert tokens_of(one) == tokens_of(other)


def test_the_version_follows_the_content():
    one, other = grown(Library(), ["a b"]), grown(Library(), ["a c"])
    assert one.version == grown(Library(), ["a b"]).version != other.version
