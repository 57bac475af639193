"""When the fast lane pays: it is not even imported before, since compiled code takes its time to load."""

from __future__ import annotations

import sys

MIN_BYTES = 256 << 10
"""Below this, compiling or loading the kernel costs more than it saves."""
MIN_BYTES_LOADED = 16 << 10
"""The same where compiled code is in memory already."""
WARM_LINES = 100
MIN_LINE = 16
"""Bytes of a line on average; shorter ones are cheap anyway."""


def min_bytes() -> int:
    """The smallest stretch of a log that is worth the fast lane."""
    return MIN_BYTES_LOADED if "numba" in sys.modules and MIN_BYTES > MIN_BYTES_LOADED else MIN_BYTES
