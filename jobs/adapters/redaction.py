"""Secrets out of every text before it reaches a table: `‹redacted:rule:hash›`, equal secrets staying comparable.

The hash is keyed, so that a placeholder cannot be searched back from a dictionary: by `FLEETDIFF_REDACTION_KEY`, else
by the lake's own random key, which ingest makes once and keeps in a file that only its owner reads (`lake_key`).
Without a lake (`inspect`, `templates` on bare files) nothing is kept, and a fixed key makes equal input equal output.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Rule:
    """One kind of secret: a pattern whose group `s` (or whole match) is replaced.

    One of `hints` (lower case) occurs, in any case, wherever the pattern finds something. `trigger` finds in a column the rows that
    are worth the pattern, in RE2's syntax.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    trigger: str


def _rule(name: str, hints: str | tuple[str, ...], pattern: str, flags: int = 0, trigger: str = "") -> Rule:
    words = tuple(hints.split()) if isinstance(hints, str) else hints
    return Rule(
        name,
        tuple(word.lower() for word in words),
        re.compile(pattern, flags),
        trigger or "|".join(re.escape(word) for word in words),
    )


_COUNTABLE = r"token|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key|access[_-]?key(?:[_-]?id)?"
_WORD = rf"passw(?:or)?d|passphrase|{_COUNTABLE}"
_KEYED_HINTS = "passw passphrase secret token api_key api-key apikey access_key access-key accesskey"
_KEYED = r"(?i:(?:passw|passphrase|secret|token|api[_-]?key|access[_-]?key)[a-z_-]*['\"]?\s*[=:]|(?:pwd|sshpass|rediscli_auth)=)"

_VALUE = r"(?:(?<=')[^'\n]{1,4096}|(?<=\")[^\"\n]{1,4096}|[^\s'\",)\]}]{1,4096})"
"""An argument: up to the quote that closes it, or to a blank or what ends a list."""
_GAP = r"(?:['\"]?[ \t]{1,4}['\"]?|['\"],[ \t]{0,4}['\"]|=['\"]?)"
"""Between an option and its argument: in a command line, in a printed list of arguments, or an equals sign."""
_TOOLS = (
    ("curl", "curl", rf"(?:-[uU](?:{_GAP})?|--(?:proxy-)?user{_GAP})(?=[^\s:]{{0,256}}:)"),
    ("mysql mariadb", r"mysql\w{0,12}|mariadb(?:-\w{1,12})?", "-p['\"]?"),
    ("sshpass", "sshpass", rf"-p(?:{_GAP})?"),
    ("login", r"(?:docker|podman|nerdctl|skopeo|oras|registry|az|buildah|crane)['\", \t]{1,5}login", rf"-p{_GAP}"),
    ("mongo", r"mongo\w{0,12}", rf"-p{_GAP}"),
    ("redis-cli", "redis-cli", rf"-a{_GAP}"),
    ("ldap", r"ldap\w{2,10}", rf"-w{_GAP}"),
    ("zip sqlcmd bcp", r"(?:un)?zip|sqlcmd|bcp", rf"-P{_GAP}"),
    ("7z", r"7z[ar]?", "-p['\"]?"),
    ("plink pscp psftp", r"plink|pscp|psftp", rf"-pw{_GAP}"),
)
"""Programs whose password stands behind a short option: hints, names, the option with what may come before the password."""


def _of_tool(hints: str, names: str, option: str) -> Rule:
    pattern = rf"\b(?:{names})\b[^\n|;]{{0,200}}?[ \t'\"]{option}(?=[^\s,-])(?P<s>{_VALUE})"
    return _rule("argument", hints, pattern, 0, rf"\b(?:{names})\b.*[ \t'\"]-")


RULES: tuple[Rule, ...] = (
    _rule("pem", "-----BEGIN", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"),
    _rule("huggingface", "hf_", r"\bhf_[A-Za-z0-9]{30,60}\b"),
    _rule("openai", "sk-", r"\bsk-[A-Za-z0-9_-]{16,200}\b"),
    _rule("github", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\b(?:gh[pousr]_[A-Za-z0-9]{20,255}"
                                                            r"|github_pat_[A-Za-z0-9_]{20,255})\b"),
    _rule("aws", "AKIA ASIA", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    _rule("slack", "xoxb- xoxa- xoxp- xoxr- xoxs-", r"\bxox[baprs]-[A-Za-z0-9-]{8,200}"),
    _rule("jwt", "eyJ", r"\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{4,8192}\.[A-Za-z0-9_-]{0,2048}"),
    _rule("url", "://", r"://(?P<s>[^\s/@:'\"]{0,256}:[^\s/@'\"]{1,256})@"),
    _rule("authorization", "bearer authorization",
          r"(?:\bbearer|\bauthorization['\"]?\s{0,4}[:=]\s{0,4}['\"]?basic)\s{1,4}(?P<s>[A-Za-z0-9._~+/=-]{12,4096})", re.I,
          r"(?i:bearer[a-z_-]*['\"]?\s*(?:[=:]|\s[A-Za-z0-9])|authorization)"),
    _rule(
        "keyed", f"{_KEYED_HINTS} pwd= sshpass= rediscli_auth=",
        rf"(?:(?P<counted>{_COUNTABLE})|passw(?:or)?d|passphrase"
        r"|(?<![A-Za-z0-9])(?:[A-Za-z]{1,24}_){0,2}(?:pwd|sshpass|rediscli_auth)(?==(?![/~.])))"
        r"['\"]?\s{0,4}[=:]\s{0,4}['\"]?(?P<s>(?!(?:None|null|True|False|true|false)\b)[^\s'\",;&|){}\]]{4,4096})",
        re.I, _KEYED,
    ),
    _rule(
        "argument", f"{_KEYED_HINTS} -pass --pwd storepass keypass",
        rf"(?<![\w-])--?(?:[a-z0-9]{{1,24}}[_-]){{0,4}}(?:(?P<counted>{_COUNTABLE}|pwd|pass(?=['\"= \t]))"
        rf"|passw(?:or)?d|passphrase|(?:store|key)pass){_GAP}(?![-$<\[{{])(?P<s>(?!(?:None|null|True|False)\b){_VALUE})",
        re.I, r"(?i:-[a-z0-9_-]*(?:pass|secret|token|api[_-]?key|access[_-]?key|pwd)[a-z_-]*['\",= \t])",
    ),
    _rule(
        "argument", (" -u", "'-u", '"-u', "--user", "--proxy-user", "--http-user", "--auth"),
        rf"(?<=[ '\"])(?:-u|--(?:proxy-|http-)?(?:user|auth)){_GAP}"
        r"(?![-$<\[{/])(?P<s>(?P<owner>[^\s:'\",]{1,256}:(?!/)[^\s'\"]{1,256}))",
        0, r"[ '\"](?:-u|--(?:proxy-|http-)?(?:user|auth))[^:\n]*:",
    ),
    *(_of_tool(*tool) for tool in _TOOLS),
    _rule("argument", "wandb", r"\bwandb['\", \t]{1,5}login\b[^\n|;]{0,100}?[ \t'\"](?P<s>[A-Za-z0-9_-]{20,200})(?![\w-])"),
)  # fmt: skip

TRIGGER = "|".join(rule.trigger for rule in RULES)
_MARK = "‹redacted:"


KEY_VARIABLE = "FLEETDIFF_REDACTION_KEY"
KEY_FILE = ".redaction-key"
_in_use = {"key": os.environ.get(KEY_VARIABLE, "fleetdiff").encode()}


def use_key(key: bytes) -> None:
    """Make this process's placeholders with a key."""
    _in_use["key"] = key


def lake_key(lake: str) -> bytes:
    """The key of a lake: `FLEETDIFF_REDACTION_KEY`, else the one in its key file, made at random when there is none.

    Two runs at once make one key: the file is linked into place complete, and the first one stays.
    """
    named = os.environ.get(KEY_VARIABLE)
    if named:
        return named.encode()
    path = Path(lake) / KEY_FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{KEY_FILE}.{os.getpid()}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_bytes().strip()


def placeholder(rule: str, secret: str) -> str:
    """What stands for a secret."""
    return f"{_MARK}{rule}:{hmac.new(_in_use['key'], secret.encode('utf-8', 'replace'), 'sha256').hexdigest()[:8]}›"


def redact(text: str, counts: Counter[str] | None = None) -> str:
    """The text without secrets; `counts` adds up by rule."""
    low = text.lower()
    for rule in RULES:
        if any(hint in low for hint in rule.hints):
            text = rule.pattern.sub(_replacer(rule.name, counts), text)
    return text


def _replacer(name: str, counts: Counter[str] | None) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        group = "s" if "s" in found.re.groupindex else 0
        secret = found.group(group)
        if _MARK in secret or _is_harmless(found, secret):
            return found.group(0)
        if counts is not None:
            counts[name] += 1
        whole, start = found.group(0), found.start(group) - found.start(0)
        return whole[:start] + placeholder(name, secret) + whole[start + len(secret) :]

    return replace


_IDS = re.compile(r"\d{1,10}:\d{1,10}$")
_RUNS_AS = re.compile(r"\b(?:docker|podman|nerdctl|apptainer|singularity|enroot|chroot|setpriv|python[\d.]{0,5})\b")


def _is_harmless(found: re.Match[str], secret: str) -> bool:
    """Counts of tokens are no secrets, nor is whom a container runs as (`-u 1000:1000`)."""
    given = found.groupdict()
    if given.get("counted"):
        return secret.isdigit() and len(secret) < 12
    if given.get("owner"):
        before = found.string[max(0, found.start() - 300) : found.start()]
        return bool(_IDS.match(secret)) or ("curl" not in before and bool(_RUNS_AS.search(before)))
    return False


def redact_array(values: pa.Array, counts: Counter[str]) -> pa.Array:
    """A column of texts without secrets: one linear pass finds the rows that may hold some, only these are rewritten."""
    hits = pc.fill_null(pc.match_substring_regex(values, TRIGGER), False)
    if not pc.any(hits).as_py():
        return values
    texts = pc.filter(values, hits).to_pylist()
    return pc.replace_with_mask(values, hits, pa.array([redact(t, counts) for t in texts], values.type))


def redact_column(values: pa.Array, counts: Counter[str]) -> pa.Array:
    """The same for a column of texts, of lists of texts or of maps of texts; other columns come back as they are."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return redact_array(values, counts)
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return pa.ListArray.from_arrays(
            values.offsets, redact_array(values.values, counts), mask=values.is_null() if values.null_count else None
        )
    if pa.types.is_map(kind) and pa.types.is_string(kind.item_type):
        return _redact_map(values, counts)
    return values


def _redact_map(values: pa.Array, counts: Counter[str]) -> pa.Array:
    """Maps: a value is judged together with its key, so that `api_key: …` is seen as it would be in a line."""
    rows = values.to_pylist()
    return pa.array([None if row is None else [(k, redact_pair(k, v, counts)) for k, v in row] for row in rows], values.type)


def redact_pair(key: str, value: str | None, counts: Counter[str]) -> str | None:
    """The value of a configuration entry without secrets, told also by the key's name.

    >>> redact_pair("env.WANDB_API_KEY", "0123456789abcdef", Counter())[:16]
    '‹redacted:keyed:'
    """
    if value is None:
        return None
    clean = redact(value, counts)
    joined = f"{key.rsplit('.', 1)[-1]}={clean}"
    checked = redact(joined, counts)
    return checked.partition("=")[2] if checked != joined else clean
