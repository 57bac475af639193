"""Distinct masked messages into templates: Drain3 clusters, then clusters split at words and meet at values.

The result depends on the set of messages alone: they are taken in sorted order. Templates of earlier nights take
part as rows of their own, so that they can only stay as they are or become more general; no state is stored.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drain3.drain import Drain

from ml.templates.columns import MAX_WORDS, fits, parts_of
from ml.templates.tokens import ANY, MAX_TOKENS, WILDCARD, has_letters, joined, pattern_of, row_of, tokens_of

Row = tuple[str, ...]
SIMILARITY = 0.5
DEPTH = 4
MAX_CHILDREN = 1000


def template_id(text: str) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the template's text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True)
class Mined:
    """What mining found.

    `texts`: template text of each masked message. `known`: new text of each known template. `patterns`: of each text
    that is new or known, the tokens as the miner keeps them.
    """

    texts: Mapping[str, str]
    known: Mapping[str, str]
    patterns: Mapping[str, str]


def mine(masked: Iterable[str], known: Mapping[str, str] | None = None, max_words: int = MAX_WORDS) -> Mined:
    """Templates of masked messages, given the templates that exist (text: pattern).

    >>> mine(["open <*> for send", "open <*> for receive"]).texts["open <*> for send"]
    'open <*> for send'
    """
    known_rows = {text: row_of(pattern) for text, pattern in sorted((known or {}).items())}
    rows = {message: tokens_of(message) for message in sorted(set(masked))}
    settled = _instances(set(rows.values()), known_rows)
    texts = {message: settled[row] for message, row in rows.items() if row in settled}
    fresh = {message: row for message, row in rows.items() if row not in settled}
    if not fresh:
        return Mined(texts, {text: text for text in known_rows}, dict(known or {}))
    items = _absorbed(_merged(_clusters(sorted({*fresh.values(), *known_rows.values()}), max_words), max_words))
    of_row = {row: template for template, members in items for row in members}
    taken: dict[Row, str] = {}
    for text, row in known_rows.items():
        if of_row[row] == row:
            taken.setdefault(row, text)
    by_template: dict[Row, list[str]] = defaultdict(list)
    for message, row in fresh.items():
        by_template[of_row[row]].append(message)
    changed = {of_row[row] for row in known_rows.values()} - taken.keys()
    for template in sorted({*by_template, *changed} - taken.keys()):
        taken[template] = _text(template) if template in changed else _rendered(template, by_template[template])
    texts.update({message: taken[of_row[row]] for message, row in fresh.items()})
    patterns = {text: pattern_of(template) for template, text in sorted(taken.items(), reverse=True)}
    return Mined(texts, {text: taken[of_row[row]] for text, row in known_rows.items()}, patterns)


def _text(template: Row) -> str:
    return " ".join(template).replace(ANY, "")


def _instances(rows: set[Row], known_rows: Mapping[str, Row]) -> dict[Row, str]:
    """Rows that a known template describes as it stands; the most specific template wins, then the first text."""
    by_length: dict[int, list[tuple[int, str, Row]]] = defaultdict(list)
    for text, row in known_rows.items():
        by_length[len(row)].append((sum(WILDCARD in token for token in row), text, row))
    for candidates in by_length.values():
        candidates.sort()
    found = {}
    for row in sorted(rows):
        for _, text, template in by_length.get(len(row), ()):
            if fits(template, row):
                found[row] = text
                break
    return found


def _clusters(rows: Sequence[Row], max_words: int) -> list[tuple[Row, list[Row]]]:
    """Drain3's clusters, each split where a position holds a few different words."""
    drain = Drain(depth=DEPTH, sim_th=SIMILARITY, max_children=MAX_CHILDREN, param_str=WILDCARD)
    for row in rows:
        drain.add_log_message(_text(row))
    members: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        line = _text(row)
        cluster = drain.match(line, "never") or drain.match(line, "always")
        members[cluster.cluster_id].append(row)
    found: list[tuple[Row, list[Row]]] = []
    pending = list(members.values())
    while pending:
        group = pending.pop()
        split = _split(group, max_words)
        if split is None:
            found.append((tuple(joined(column) for column in zip(*group)), group))
        else:
            pending += split
    return sorted(found)


def _split(group: list[Row], max_words: int) -> list[list[Row]] | None:
    """The group in parts at its first position that holds different words; None when there is none."""
    previous: str | None = None
    for position, column in enumerate(zip(*group)):
        parts = parts_of(set(column), previous, max_words)
        if len(parts) > 1:
            return [[row for row in group if row[position] in part] for part in parts]
        previous = column[0]
    return None


def _merged(items: list[tuple[Row, list[Row]]], max_words: int) -> list[tuple[Row, list[Row]]]:
    """Templates that differ at one position, by values of one variable, become one; until none is left."""
    current: dict[Row, list[Row]] = defaultdict(list)
    for template, members in items:
        current[template] += members
    is_changed = True
    while is_changed:
        is_changed = False
        for position in range(max((len(template) for template in current), default=0)):
            for alike in _alike(current, position):
                is_changed |= _merge_alike(current, alike, position, max_words)
    return sorted(current.items())


def _alike(current: Mapping[Row, list[Row]], position: int) -> list[list[Row]]:
    """Templates that are equal but for one position and say something elsewhere."""
    alike: dict[tuple[Row, Row], list[Row]] = defaultdict(list)
    for template in current:
        if position < len(template):
            alike[template[:position], template[position + 1 :]].append(template)
    return [
        sorted(group)
        for (before, after), group in sorted(alike.items())
        if len(group) > 1 and any(has_word(token) for token in (*before, *after))
    ]


def has_word(token: str) -> bool:
    """Whether a token holds three letters in a row or more outside its masked parts."""
    literal = token.replace(WILDCARD, " ")
    return any(literal[i : i + 3].isalpha() for i in range(len(literal) - 2)) and has_letters(literal)


def _merge_alike(current: dict[Row, list[Row]], alike: list[Row], position: int, max_words: int) -> bool:
    values = {template[position]: template for template in alike}
    previous = alike[0][position - 1] if position else None
    parts = parts_of(set(values), previous, max_words)
    is_changed = False
    for part in parts:
        if len(part) < 2:
            continue
        template = (*alike[0][:position], joined(part), *alike[0][position + 1 :])
        members = [row for value in sorted(part) for row in current.pop(values[value])]
        current[template] = [*current.get(template, []), *members]
        is_changed = True
    return is_changed


def _absorbed(items: list[tuple[Row, list[Row]]]) -> list[tuple[Row, list[Row]]]:
    """Templates that a more general one describes go into it."""
    by_length: dict[int, list[tuple[Row, list[Row]]]] = defaultdict(list)
    for template, members in items:
        by_length[len(template)].append((template, members))
    found: list[tuple[Row, list[Row]]] = []
    for length in sorted(by_length):
        ordered = sorted(by_length[length], key=lambda item: (-sum(WILDCARD in token for token in item[0]), item[0]))
        general: list[tuple[Row, list[Row]]] = []
        for template, members in ordered:
            home = next((other for wider, other in general if fits(wider, template)), None)
            if home is not None:
                home += members
                continue
            own = (template, list(members))
            found.append(own)
            if any(WILDCARD in token for token in template):
                general.append(own)
    return found


def _rendered(template: Row, messages: Sequence[str]) -> str:
    """The template's text: with its lists as long as they are where all messages agree, folded otherwise."""
    rows = [message.split() for message in messages]
    if len({len(row) for row in rows}) == 1 and len(rows[0]) <= MAX_TOKENS:
        text = _text(tuple(joined(column) for column in zip(*rows)))
        if " ".join(tokens_of(text)) == _text(template):
            return text
    return _text(template)
