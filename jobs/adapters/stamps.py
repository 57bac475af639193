"""Times as logs print them, turned into microseconds since 1970 UTC.

Stamps without a zone are read in the cluster's zone, stamps without a year in the year that puts them nearest to
the job. Epoch numbers are told apart by their magnitude. What cannot be a time (1970, 2106) is no time at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MICRO = 1_000_000
EARLIEST_US = 1_000_000_000 * MICRO
LATEST_US = 4_102_444_800 * MICRO
"""2001 and 2100: what lies outside is a broken clock or no time."""

MONTHS = {m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ISO = r"(\d{4}[-/.]\d\d[-/.]\d\d[T _-]\d\d:\d\d:\d\d)(?:[.,:](\d{1,9}))?(?: ?(Z|UTC|[+-]\d\d:?\d\d)(?![\w-]))?(?: ?([AaPp][Mm])\b)?"
"""2026-11-30 03:04:05.035, with `T`, `_` or a dot, comma or colon before the fraction, and a zone or am/pm or not."""
GLOG = r"([IWEFDC])(\d{4}) (\d\d:\d\d:\d\d)\.(\d{3,9})"
"""W1130 03:20:31.923000: level, month and day, no year."""
SYSLOG = (
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)  ?(\d{1,2})"
    r" (\d\d:\d\d:\d\d)(?: (\d{4}))?"
)
"""Oct 16 20:47:19, Thu Oct 10 03:06:53 2024."""


def in_range(us: int) -> int | None:
    """The time if it can be one."""
    return us if EARLIEST_US <= us < LATEST_US else None


def from_epoch(value: float) -> int | None:
    """Microseconds from an epoch number in s, ms, µs or ns, told apart by magnitude; None outside 2001 to 2100."""
    if not value > 0:
        return None
    for unit in (1e6, 1e3, 1, 1e-3):
        us = value * unit
        if EARLIEST_US <= us < LATEST_US:
            return round(us)
    return None


def to_us(at: datetime) -> int:
    """Microseconds of an aware datetime, exact."""
    return (at - EPOCH) // timedelta(microseconds=1)


def from_us(us: int | None) -> datetime | None:
    """The datetime of microseconds."""
    return None if us is None else EPOCH + timedelta(microseconds=us)


def zone_of(name: str) -> ZoneInfo:
    """A time zone by name; UTC when there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def parse_iso(text: str, zone: str = "UTC") -> int | None:
    """Microseconds of an ISO-like text; naive ones in `zone`; None when it is none.

    >>> parse_iso("2026-11-30T03:04:05Z")
    1796007845000000
    """
    found = _ISO.match(text.strip())
    if not found:
        return None
    return Clock(zone).iso(*found.groups())


@dataclass
class Clock:
    """Turns the parts of stamps into microseconds for one file, remembering seconds and zones it has seen."""

    zone: str = "UTC"
    near_us: int | None = None
    latest_us: int | None = None
    _seconds: dict[str, int | None] = field(default_factory=dict)
    _ambiguous: set[str] = field(default_factory=set)
    _midnights: dict[str, int | None] = field(default_factory=dict)
    is_ambiguous: bool = False

    def iso(self, second: str, fraction: str | None = None, offset: str | None = None, half: str | None = None) -> int | None:
        """Microseconds of an ISO-like stamp by its parts."""
        key = second if offset is None and half is None else f"{second}|{offset}|{half}"
        known = self._seconds.get(key, -1)
        if known == -1 and key is second and self.zone == "UTC":
            known = self._in_utc(second)
            return known if known is None or not fraction else known + int(fraction[:6].ljust(6, "0"))
        if known == -1:
            known = self._second(second, offset, half)
            if len(self._seconds) > 100_000:
                self._seconds.clear()
            self._seconds[key] = known
        self.is_ambiguous = key in self._ambiguous if self._ambiguous else False
        if known is None or not fraction:
            return known
        return known + int(fraction[:6].ljust(6, "0"))

    def _in_utc(self, second: str) -> int | None:
        """The same for the plain case, by the day's midnight: quick, and needs no memory of seconds."""
        day = second[:10]
        midnight = self._midnights.get(day, -1)
        if midnight == -1:
            midnight = self._midnights[day] = self._second(day + " 00:00:00", None, None)
        hour, minute, sec = int(second[11:13]), int(second[14:16]), int(second[17:19])
        if midnight is None or hour > 23 or minute > 59 or sec > 61:
            return None
        return midnight + ((hour * 60 + minute) * 60 + min(sec, 59)) * MICRO

    def _second(self, second: str, offset: str | None, half: str | None) -> int | None:
        try:
            year, month, day = int(second[:4]), int(second[5:7]), int(second[8:10])
            hour, minute, sec = int(second[11:13]), int(second[14:16]), int(second[17:19])
            if half:
                hour = hour % 12 + (12 if half.lower() == "pm" else 0)
            at = datetime(year, month, day, hour, minute, min(sec, 59))
        except ValueError:
            return None
        if offset:
            return in_range(to_us(at.replace(tzinfo=_offset(offset))))
        local = at.replace(tzinfo=zone_of(self.zone))
        if local.utcoffset() != local.replace(fold=1).utcoffset():
            self._ambiguous.add(second if half is None else f"{second}|{offset}|{half}")
        return in_range(to_us(local))

    def yearless(self, month: int, day: int, clock: str, fraction: str | None = None) -> int | None:
        """Microseconds of a stamp without a year: the year that brings it nearest to the job, and not behind `latest_us`."""
        near = from_us(self.near_us)
        if near is None:
            return None
        years = (near.year - 1, near.year, near.year + 1)
        found = [us for year in years if (us := self.iso(f"{year:04d}-{month:02d}-{day:02d} {clock}", fraction)) is not None]
        latest = self.latest_us
        possible = [us for us in found if latest is None or us <= latest] or found
        return min(possible, key=lambda us: abs(us - to_us(near)), default=None)


def _offset(text: str) -> timezone:
    if text in ("Z", "UTC"):
        return UTC
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:4])
    return timezone(sign * timedelta(minutes=min(minutes, 23 * 60 + 59)))


_ISO = re.compile(ISO)
