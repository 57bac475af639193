"""An optional message to a webhook (Slack's form): off unless an address is given, one message a failure family.

Set `FLEETDIFF_WEBHOOK_URL` (and `FLEETDIFF_REPORT_URL`, where people find the pages) to turn it on. The message holds
counts, states and names of jobs and machines; never text from logs. A message that cannot be sent does not fail the night.
"""

from __future__ import annotations

import json
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from jobs.core.errors import FleetdiffError
from jobs.reports import folder
from jobs.reports.pages.night import Night, first_look, newest
from jobs.reports.words import count, number

MAX_LINES = 12
MAX_FAILURES = 6
SENT = "notified.json"
TIMEOUT_S = 10
_NAME = re.compile(r"[^\w.:/+-]+", re.ASCII)

log = logging.getLogger(__name__)


def announce(night: Night, target: str, settings: Mapping[str, Any]) -> int:
    """Send what is new to the webhook and remember it; returns the number of failures told (0 when off or nothing is new)."""
    url = settings.get("webhook_url") or os.environ.get("FLEETDIFF_WEBHOOK_URL")
    if not url:
        return 0
    if not str(url).startswith(("http://", "https://")):
        raise FleetdiffError("FLEETDIFF_WEBHOOK_URL: not an http or https address; unset it or mend it")
    told = set(_remembered(target))
    fresh = [(row, why) for row, why in first_look(night) if topic(row, night.family_of) not in told]
    if not fresh:
        return 0
    link = settings.get("report_url") or os.environ.get("FLEETDIFF_REPORT_URL") or ""
    if not send(str(url), message(night, fresh[:MAX_FAILURES], str(link))):
        return 0
    told |= {topic(row, night.family_of) for row, _ in fresh}
    folder.write(target, SENT, json.dumps(sorted(told), indent=0))
    return len(fresh)


def topic(row: Mapping[str, Any], family_of: Mapping[str, str]) -> str:
    """What a failure is told once for: its family, or itself when it is alone."""
    return "family " + family_of[row["job_id"]] if row["job_id"] in family_of else f"job {row['job_id']}"


def message(night: Night, fresh: list[tuple[Mapping[str, Any], str]], link: str) -> str:
    """At most twelve lines: the night in figures, the new failures, where to read on."""
    tonight = newest(night.jobs)
    n_failed = sum(bool(row["is_failed"]) for row in tonight)
    hours = sum(float(row["gpu_hours"] or 0.0) for row in tonight if row["is_failed"])
    told = f"{count(len(tonight), 'job')} ended, {count(n_failed, 'job')} failed, {number(hours)} GPU-hours in failed jobs"
    lines = [f"*fleetdiff*: {told}"]
    lines += [f"• {_failure(row)}" for row, _ in fresh]
    if link.startswith(("http://", "https://")):
        lines.append(f"<{_escaped(link).replace('|', '%7C')}|Open the night's page>")
    return "\n".join(lines[: MAX_LINES - 1] if len(lines) >= MAX_LINES else lines)


def _failure(row: Mapping[str, Any]) -> str:
    said = f"{name(row['job_id'])}: {str(row['symptom']).replace('_', ' ')}"
    if row["cause_class"] not in ("undetermined", "none"):
        said += f", candidate cause {name(row['cause_class'])}"
    if row["accused"]:
        said += f", candidate {', '.join(name(node) for node in row['accused'][:2])} (score {number(row['score'], 2)})"
    return said


def name(text: object) -> str:
    """A name that cannot hold markup, mentions or line breaks.

    >>> name("<!channel> n1")
    '·channel·n1'
    """
    return _NAME.sub("·", str(text))[:48]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split()[0]


def send(url: str, text: str) -> bool:
    """Post the message; says in the log, without the address, when it cannot be sent."""
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")  # noqa: S310  checked by the caller
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return 200 <= answer.status < 300
    except (urllib.error.URLError, OSError, ValueError) as error:
        log.warning("webhook: the message was not sent (%s); the pages are written", type(error).__name__)
        return False


def _remembered(target: str) -> list[str]:
    return folder.read_list(target, SENT)
