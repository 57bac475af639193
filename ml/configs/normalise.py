"""One spelling for one meaning: keys and values of configurations as different tools write them.

Two values that mean the same compare equal as text afterwards: `1e-3` and `0.001`, `True` and `yes`, `16 GiB` and
`17179869184 B`, `10min` and `600s`, `torch.bfloat16` and `bf16`, `/home/ana/data/` and `/home/bo/data`. Versions are
never read as numbers: 2.30 is not 2.3.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_KEY_LENGTH = 300
MAX_VALUE_LENGTH = 4000
BLOCK = "args."
"""In front of keys that a log printed: a framework's argument block, MLLOG lines."""
FRAMES = (BLOCK, "config.", "cfg.", "arguments.", "mllog.")

_BOOLEANS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
_ABSENT = frozenset({"", "null", "none", "~", "unset", "undefined", "<null>", "n/a"})
_DTYPES = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "fp64": "float64", "double": "float64",
    "bf16-mixed": "bfloat16-mixed", "16-mixed": "float16-mixed",
}  # fmt: skip
_INTEGER = re.compile(r"[+-]?\d{1,40}\Z")
_NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,3})?\Z")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}([,_]\d{3}){1,12}\Z")
_BYTES = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?([KMGTP])(i?)B\Z", re.IGNORECASE)
_SECONDS = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?(us|ms|s|secs?|seconds?|mins?|minutes?|hrs?|h|hours?)\Z", re.IGNORECASE)
_SECONDS_IN = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_QUOTES = str.maketrans("", "", "\"' \t\n")
_OWNER = re.compile(r"/(home|users?|scratch|gpfsscratch|lustre|work|workspace|mnt/home|data/users?)/[^/]+(?=/|\Z)", re.IGNORECASE)
_RUN_PART = re.compile(
    r"\d{4}[-_.]?\d{2}[-_.]?\d{2}([-_.T ]?\d{2}[-_.:]?\d{2}([-_.:]?\d{2})?)?|(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f-]{27}|\d{6,}"
)
_VERSION_WORDS = re.compile(r"(ver(sion)?\.? ?)?v?(?=\d)", re.IGNORECASE)
_RUN_SPECIFIC = (
    re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE),
    re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?\Z"),
    re.compile(r"(tcp|http|https)://[^/]{1,200}(:\d{1,5})?/?\Z"),
)


def normal_key(key: str) -> str:
    """A key in lower case, `-` as `_`, without leading dashes and without the frame that tools put around it.

    >>> normal_key("--Tensor-Model-Parallel-Size")
    'tensor_model_parallel_size'
    """
    short = key.strip().lstrip("-").lower().replace("-", "_").replace("/", ".")[:MAX_KEY_LENGTH]
    for frame in FRAMES:
        if short.startswith(frame) and len(short) > len(frame):
            short = short[len(frame) :]
    return short


@lru_cache(maxsize=200_000)
def normal_value(text: str, is_version: bool = False) -> str | None:
    """A value's one spelling; None when it stands for "not set".

    >>> normal_value("1e-3"), normal_value("0.001"), normal_value("2.30", True)
    ('0.001', '0.001', '2.30')
    """
    bare = text[:MAX_VALUE_LENGTH].strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'":
        bare = bare[1:-1].strip()
    lowered = bare.lower()
    if lowered in _ABSENT:
        return None
    if is_version:
        return _VERSION_WORDS.sub("", lowered, count=1) if lowered[:1] in "v" else lowered
    if lowered in _BOOLEANS:
        return _BOOLEANS[lowered]
    return _number(bare) or _unit(bare) or _kind(bare, lowered)


def is_run_specific(value: str) -> bool:
    """Whether a value can only belong to one run: a UUID, a time stamp, an address."""
    return any(pattern.match(value) for pattern in _RUN_SPECIFIC)


def _number(bare: str) -> str | None:
    if _THOUSANDS.match(bare):
        bare = bare.replace(",", "").replace("_", "")
    if _INTEGER.match(bare):
        return str(int(bare))
    if _NUMBER.match(bare):
        return _plain(float(bare))
    if bare.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return str(float(bare))
    return None


def _plain(number: float) -> str:
    """A float as text: whole numbers without a fraction."""
    return str(int(number)) if abs(number) < 1e15 and number == int(number) else repr(number)


def _unit(bare: str) -> str | None:
    """Bytes and seconds, in their base unit."""
    found = _BYTES.match(bare)
    if found:
        power = "KMGTP".index(found[2].upper()) + 1
        return _plain(float(found[1]) * (1024 if found[3] else 1000) ** power) + " B"
    found = _SECONDS.match(bare)
    if found:
        word = found[2].lower()
        factor = _SECONDS_IN[word] if word in ("us", "ms") else _SECONDS_IN[word[0]]
        return _plain(round(float(found[1]) * factor, 9)) + " s"
    return None


def _kind(bare: str, lowered: str) -> str:
    """Lists, data types, paths; anything else as it stands."""
    if bare[0] in "[({" and bare[-1] in "])}":
        inner = bare[1:-1].translate(_QUOTES)
        return f"{{{inner}}}" if bare[0] == "{" else f"[{inner}]"
    if lowered.startswith("torch.") and lowered[6:].isalnum():
        return _DTYPES.get(lowered[6:], lowered[6:])
    if lowered in _DTYPES:
        return _DTYPES[lowered]
    return _path(bare) if "/" in bare else bare


def _path(bare: str) -> str:
    """A path without its owner's folder and without what changes from run to run (dates, long numbers, ids).

    >>> _path("/home/ana/runs/2026-11-30_12-00-01/data/")
    '~/runs/#/data'
    """
    path = re.sub(r"(?<!:)/{2,}", "/", bare)
    path = path[2:] if path.startswith("./") else path
    path = path.rstrip("/") or "/"
    return _RUN_PART.sub("#", _OWNER.sub("~", path, count=1))
