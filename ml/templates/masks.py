r"""The masks as data: what is variable in a log line, whatever system wrote it.

Each mask is one regular expression over bytes. They are tried in this order at every position of the line, the
first that fits wins and the scan goes on behind it; what no mask claims stays as it is. Joined into one pattern
they are the reference (`ml.templates.masking.mask_reference`); `ml.templates.kernel` does the same in one compiled
pass and is tested against it. Changing a mask changes every `message_key`: raise `MASK_VERSION`.

Every pattern is linear: classes that follow each other are disjoint or possessive, and each look-around is bounded
by the run that it looks at.
"""

from __future__ import annotations

from dataclasses import dataclass

MASK_VERSION = 1
MAX_BYTES = 16_384
WILDCARD = b"<*>"

LETTER = rb"A-Za-z\x80-\xff"
ALNUM = rb"0-9A-Za-z\x80-\xff"
SPACE = rb" \t\n\r\x0b\x0c\x00"
PATH = rb"0-9A-Za-z_\x80-\xff.\-+@%~#$&"
OPENERS = rb" \t\n\r\x0b\x0c\x00\"'(\[{=,;|<:"

INDEX_NOUNS = (
    "rank", "node", "gpu", "cuda", "worker", "host", "cpu", "core", "thread", "default", "trainer", "device", "dev",
    "step", "epoch", "iter", "layer", "shard", "slot", "replica", "stage", "proc", "task", "server", "dp", "tp", "pp",
    "cp", "ep", "mp", "sp", "nvidia", "nic", "hca", "nvme",
)  # fmt: skip
"""Nouns whose number is an index even when it is short and glued on: `rank5`, `node07`."""

CODE_WORDS = (
    "exitcode", "exit code", "exit_code", "exit status", "with code", "with status", "returncode", "return code",
    "signal", "errno", "xid",
)  # fmt: skip
"""Words whose number is a name, not a quantity: it stays, so that exit code -9 is not exit code 0."""

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
GENERIC_DOMAINS = ("com", "net", "org", "edu", "gov", "mil", "local", "lan", "internal")
COUNTRY_DOMAINS = (
    "cn", "hk", "jp", "de", "uk", "tw", "kr", "br", "ru", "fr", "au", "ca", "nl", "se", "ch", "es", "cz", "dk", "fi",
    "pt", "gr", "il", "mx", "ar", "ro", "hu", "tr", "ua", "id", "it", "sg", "us", "eu",
)  # fmt: skip
DOMAINS = GENERIC_DOMAINS + COUNTRY_DOMAINS


def _words(words: tuple[str, ...]) -> bytes:
    return b"|".join(word.encode() for word in words)


def _suffixes(domains: tuple[str, ...]) -> bytes:
    """Look-behinds: the claimed name ends in a dot and one of these domains."""
    return b"|".join(rb"(?<=\.(?i:" + domain.encode() + rb"))" for domain in domains)


def _index_nouns() -> bytes:
    """Look-behinds (fixed width each): exactly this noun stands before the digits, in any case."""
    nouns = (noun.encode() for noun in INDEX_NOUNS)
    return b"|".join(rb"(?<=(?i:" + n + rb"))(?<![" + LETTER + rb"](?i:" + n + rb"))" for n in nouns)


@dataclass(frozen=True)
class Mask:
    """One mask: the bytes that it claims, what they become, and examples `(before, after)` that are tested.

    `becomes` is the wildcard, or `{0}` for the claimed text with its white space squeezed, `quoted` for a wildcard in
    the same quotes, `{1} (<*>): {2}` for the pattern's named groups `a` and `b` around a wildcard.
    """

    name: str
    pattern: bytes
    becomes: str = "<*>"
    examples: tuple[tuple[str, str], ...] = ()


MASKS: tuple[Mask, ...] = (
    Mask("space", rb"[" + SPACE + rb"]++", " ", (("a  \t b \n  c ", "a b\nc"),)),
    Mask(
        "quoted value",
        rb"(?:(?<=[=:])|(?<=: ))(?:\"(?![A-Za-z]*\")[^\"\n]{1,200}+\"|'(?![A-Za-z]*')[^'\n]{1,200}+')",
        "quoted",
        (('tag="View Lock", x', 'tag="<*>", x'), ("state: 'FAILED'", "state: 'FAILED'"), ("KeyError: 'a.b'", "KeyError: '<*>'")),
    ),
    Mask("less than", rb"<[0-9]++ ?(?:sec|min|ms|s)(?![" + LETTER + rb"])", "<*>", (("lifetime <1 sec", "lifetime <*>"),)),
    Mask(
        "date",
        rb"(?<!["
        + ALNUM
        + rb"])(?:(?:"
        + _words(WEEKDAYS)
        + rb"),?+ {1,2}+)?+(?:"
        + _words(MONTHS)
        + rb") {1,2}+[0-9]{1,2}+(?!["
        + ALNUM
        + rb"])"
        rb"(?: [0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]++)?+(?!["
        + ALNUM
        + rb"]))?+(?:(?: [A-Z]{3,4})?+ [0-9]{4}(?!["
        + ALNUM
        + rb"]))?+",
        "<*>",
        (("at Fri Jun 17 20:55:07 2005", "at <*>"), ("since Jul  1 19:09:44 PDT 2005 x", "since <*> x"), ("Mar was", "Mar was")),
    ),
    Mask(
        "date with a T",
        rb"(?<!["
        + ALNUM
        + rb"])[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?![0-9])"
        + rb"(?::[0-9]{2}(?![0-9])(?:[.,][0-9]++)?+)?+(?:Z|[+-][0-9]{2}:?+[0-9]{2})?+",
        "<*>",
        (("AT 2026-11-30T04:14:12 ***", "AT <*> ***"), ("2026-11-30T04:14:12.5+00:00", "<*>")),
    ),
    Mask(
        "path",
        rb"(?:(?<![^" + OPENERS + rb"]))(?:~|\.\.?)?/(?![0-9])[" + PATH + rb"]++/[" + PATH + rb"/]*+",
        "<*>",
        (
            ("open /data/a/x.bin now", "open <*> now"),
            ("at ./a/b.py:12", "at <*>:<*>"),
            ("dest: /10.2.3.4:80", "dest: /<*>:<*>"),
            ("and/or", "and/or"),
        ),
    ),
    Mask(
        "Windows path",
        rb"(?:(?<![^" + OPENERS + rb"]))(?:[A-Za-z]:)?\\[" + PATH + rb"\\?]++",
        "<*>",
        ((r"from 'C:\Windows\x.dll'", "from '<*>'"), (r"key \Registry\Machine", "key <*>")),
    ),
    Mask(
        "URL",
        rb"(?<![" + ALNUM + rb"])[A-Za-z][A-Za-z0-9]*+://[^" + SPACE + rb"\"'<>()\[\]{},;|`]*+",
        "<*>",
        (("GET https://a.b/c?d=1 ok", "GET <*> ok"), ("init tcp://10.0.0.1:29500", "init <*>")),
    ),
    Mask(
        "PCI address",
        rb"(?<![" + ALNUM + rb":.])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?+(?![" + ALNUM + rb":])",
        "<*>",
        (("GPU 00000000:C1:00.0 lost", "GPU <*> lost"), ("0000:1e:00", "<*>")),
    ),
    Mask(
        "IPv6 or MAC address",
        rb"(?<![" + ALNUM + rb":.])(?=[A-Fa-f:]*+[0-9])(?:(?=(?:[0-9A-Fa-f]*+:){4})|(?=[0-9A-Fa-f:]*?::))"
        rb"[0-9A-Fa-f:]++(?![" + ALNUM + rb"])",
        "<*>",
        (("via fe80::1 up", "via <*> up"), ("mac 02:42:ac:11:00:02", "mac <*>"), ("at 12:30:05", "at <*>:<*>:<*>")),
    ),
    Mask(
        "UUID",
        rb"(?<![" + ALNUM + rb"])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![" + ALNUM + rb"])",
        "<*>",
        (("id 54fadb41-2c4e-40cd-baec-9335e4c35a9e", "id <*>"),),
    ),
    Mask("hexadecimal", rb"(?<![" + ALNUM + rb"])0[xX][0-9A-Fa-f]++", "<*>", (("at 0x7fEd80", "at <*>"),)),
    Mask(
        "hexadecimal id",
        rb"(?<![" + ALNUM + rb"])(?=[A-Fa-f]*+[0-9])(?=[0-9]*+[A-Fa-f])[0-9A-Fa-f]{6,}+(?![" + ALNUM + rb"])",
        "<*>",
        (("Token{a64f992 x}", "Token{<*> x}"), ("defaced", "defaced")),
    ),
    Mask(
        "mixed id",
        rb"(?<!["
        + ALNUM
        + rb"])(?:["
        + LETTER
        + rb"]++[0-9]++["
        + LETTER
        + rb"]++[0-9]|[0-9]++["
        + LETTER
        + rb"]++[0-9]++["
        + LETTER
        + rb"])["
        + ALNUM
        + rb"]*+",
        "<*>",
        (("run_5w6l45qc/x", "run_<*>/x"), ("took 1h20m3s", "took <*>"), ("x86_64", "x86_<*>")),
    ),
    Mask(
        "Xid",
        rb"(?<![" + ALNUM + rb"])(?P<a>(?i:s?xid)) \([^()\n]{1,40}+\): ?(?P<b>[0-9]++)",
        "{1} (<*>): {2}",
        (("Xid (PCI:0000:05:00): 79, pid=12", "Xid (<*>): 79, pid=<*>"),),
    ),
    Mask(
        "code",
        rb"(?<![" + ALNUM + rb"])(?i:" + _words(CODE_WORDS) + rb")[ \t:=(\[#'\"]{1,8}+[+-]?[0-9]++",
        "{0}",
        (("exitcode  : -9 (pid: 12)", "exitcode : -9 (pid: <*>)"), ("Signal 11 received", "Signal 11 received")),
    ),
    Mask(
        "host",
        rb"(?<!["
        + ALNUM
        + rb".\-])(?=[0-9A-Za-z])(?:(?=[0-9A-Za-z\-]*+\.[0-9A-Za-z\-]*+\.)[0-9A-Za-z.\-]++(?:"
        + _suffixes(DOMAINS)
        + rb")|[0-9A-Za-z.\-]++(?:"
        + _suffixes(GENERIC_DOMAINS)
        + rb"))(?![\x80-\xff])",
        "<*>",
        (("from ns.example.com [10.0.0.1]", "from <*> [<*>]"), ("org.apache.Server ok", "org.apache.Server ok")),
    ),
    Mask(
        "number",
        rb"(?:(?<![" + ALNUM + rb")\]])[+-]|(?<![" + ALNUM + rb"]))[0-9]++(?:[.,][0-9]++)*+(?:[eE][+-]?[0-9]++)?+",
        "<*>",
        (
            ("loss: 5.86E+00 | x=-1", "loss: <*> | x=<*>"),
            ("in 10.5ms", "in <*>ms"),
            ("blk_-12 1,024", "blk_<*> <*>"),
            ("10-20", "<*>-<*>"),
        ),
    ),
    Mask(
        "long or dotted number behind letters",
        rb"(?<=[" + LETTER + rb"])(?:[0-9]{3,}+(?:\.[0-9]++)*+|[0-9]++(?:\.[0-9]++)++)",
        "<*>",
        (("dn228 up", "dn<*> up"), ("v1.2.3", "v<*>"), ("jk2_init ssh2", "jk2_init ssh2")),
    ),
    Mask(
        "index noun",
        rb"(?:" + _index_nouns() + rb")[0-9]++",
        "<*>",
        (("rank5 GPU0 node07", "rank<*> GPU<*> node<*>"), ("frank5", "frank5")),
    ),
)
