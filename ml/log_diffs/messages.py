"""What one log message says about who is to blame: an origin, an echo of a peer, a tear-down, or an exit report.

The vocabulary is that of network and collective libraries, launchers and runtimes in general. Every pattern is a
plain alternation over a bounded prefix of the message, so its time is linear in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

MAX_MORE = 600
_END_OF_MORE = re.compile(r"\n\s*\n|\n[^\n]{0,40}(?:During handling|The above exception|Traceback|Exception raised from|frame #)")
MAX_CHARS = 16_384
"""Longer messages are read at both ends only."""


class Voice(StrEnum):
    """Whom a message speaks of."""

    ORIGIN = "origin"
    """Something broke here."""
    CASCADE = "cascade"
    """A peer went away: connection closed, reset, refused, aborted."""
    WAITING = "waiting"
    """A peer did not come: a wait for others timed out."""
    TEARDOWN = "teardown"
    """The launcher ended this process or sums up what others said."""
    PLAIN = "plain"
    """No failure is told."""


_LOST_PEER = re.compile(
    r"connection (?:was |has been |is |unexpectedly )*(?:closed|reset|refused|aborted|lost|dropped|broken|terminated)"
    r"|\bbroken pipe\b|\bpeer (?:closed|has closed|disconnected|exited|went away|is gone)|disconnected from peer"
    r"|(?:closed|reset|aborted) by (?:the )?(?:remote|peer)|remote (?:end|host|side) closed|remote error|remoteerror"
    r"|remote (?:process|rank|peer|worker|node)[^\n]{0,40}(?:exited|crashed|died|gone|failed|closed)"
    r"|socket (?:was |is |has been )?(?:closed|hung up)|unexpected eof|\bepipe\b|\beconn(?:reset|refused|aborted)\b"
    r"|communicator (?:was |has been )?(?:aborted|destroyed)|aborted communicator"
    r"|abort(?:ed|ing)? due to[^\n]{0,60}(?:peer|rank|other)"
    r"|some nccl operations have failed|taking the entire process down"
    r"|another (?:rank|process|worker)[^\n]{0,40}(?:failed|died|exited)"
    r"|(?:exception|failure|error|crash)[^\n]{0,40}\b(?:on|in|of|from) (?:one of the |another |some |a remote |other )(?:other )?"
    r"(?:rank|process|worker|peer|task|node|host)"
    r"|stopped sending heartbeats|(?:tasks?|peers?|workers?|hosts?) (?:is|are|became) (?:unhealthy|unavailable|unreachable)"
    r"|recvvalue failed|failed to recv|sendbytes failed|no route to host|host is unreachable",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(
    r"\btim(?:e|ed|es|ing)[ _-]?out\b|\btimeout\b|deadline exceeded|\bwatchdog\b|heartbeat (?:lost|missed|time)|gave up waiting",
    re.IGNORECASE,
)
_TALKS_TO_PEERS = re.compile(
    r"collective|all_?-?reduce|all_?-?gather|reduce_?-?scatter|broadcast|barrier|\bnccl\b|\bgloo\b|\bhccl\b|\brccl\b|\bmpi\b|\bucc\b"
    r"|remote (?:rank|process|worker|node)"
    r"|process ?group|rendezvous|c10d|\bstore\b|tcpstore|\bpeers?\b|send operation|recv operation|to complete|\bworkNCCL\b"
    r"|\bsend\b|\brecv\b",
    re.IGNORECASE,
)
_LOADS = re.compile(r"data ?loader|\bs3\b|\bhttps?:|\bnfs\b|storage|download|\bhdfs\b|object store", re.IGNORECASE)
_TEARDOWN = re.compile(
    r"\bsigterm\b|signal 15\b|closing signal|death signal|shutting down (?:worker|process)|killing subprocess"
    r"|signalexception|keyboardinterrupt|childfailederror|worker group|stop(?:ping|ped) (?:all )?workers"
    r"|main process received|terminating (?:all )?(?:worker|process|task)|terminated by the launcher"
    r"|slurmstepd: error: \*\*\* |step cancelled"
    r"|forcefully exiting|(?:sent|sending) (?:signal|process)|calledprocesserror|subprocess\.calledprocess",
    re.IGNORECASE,
)
_FAILURE = re.compile(
    r"^(?:\s*\[[^\]\n]{0,60}\]:?\s*)?(?:Traceback \(most recent call last\)|terminate called after|[FE]\d{4}\b)"
    r"|\b(?:error|exception|fatal|failed|failure|panic|abort(?:ed)?|core dumped|segmentation fault|assert(?:ion)?|killed"
    r"|out of memory|no space left|non-?finite|cannot allocate|corrupt|xid)\b|Error\b|Exception\b"
    r"|\b(?:loss|norm)[^\n]{0,40}\b(?:nan|inf)\b"
    r"|\bfound nan\b",
    re.IGNORECASE | re.MULTILINE,
)

_SUMMARY = re.compile(
    r"^(?:\[[^\]\n]{1,40}\]:?[ \t]*)?((?:[A-Za-z_]\w*\.){0,8}(?:Exception|[A-Z]\w{0,60}?"
    r"(?:Error|Exception|Interrupt|Exit|Timeout|NotFound|Failure|Abort|EOF)\w{0,20})"
    r"|(?:[A-Za-z_]\w*\.){1,8}[a-z]{1,20}(?:error|exception|timeout))"
    r"(?::[ \t]*([^\n]{0,400})|[ \t]*$)",
    re.MULTILINE,
)
_BARE_SUMMARY = re.compile(
    r"^(?:\[?rank\d+\]?:\s*)?((?:[A-Za-z_]\w*\.){1,8}[A-Z]\w{0,60})(?::[ \t]*([^\n]{0,400})|[ \t]*$)", re.MULTILINE
)
_NATIVE = re.compile(
    r"terminate called after throwing an instance of '([^'\n]{1,120})'"
    r"(?:[^\n]*\n\s*(?:\[?rank\d+\]?:\s*)?what\(\):\s*([^\n]{0,400}))?"
)
_QUOTED = re.compile(r"^\s*(?:\[rank\d+\]:\s*)?File \"[^\n]*\n|^\s*(?:\[rank\d+\]:\s*)?[\^~ ]+$", re.MULTILINE)


@dataclass(frozen=True)
class Raised:
    """An exception as a log prints it: `kind` is its class without modules, `text` what it says."""

    kind: str
    text: str


def bounded(message: str) -> str:
    """The message, or its first and last part when it is longer than `MAX_CHARS`."""
    if len(message) <= MAX_CHARS:
        return message
    half = MAX_CHARS // 2
    return message[:half] + "\n…\n" + message[-half:]


def raised(message: str) -> Raised | None:
    """The first exception that a message tells of; in a chain the first one is what happened, the others followed.

    >>> raised("Traceback (most recent call last):\\n  File \\"a.py\\", line 1\\nKeyError: 'targets'")
    Raised(kind='KeyError', text="'targets'")
    """
    text = bounded(message)
    native = _NATIVE.search(text)
    found = _SUMMARY.search(text)
    if found is None and "Traceback (most recent call last)" in text:
        found = _BARE_SUMMARY.search(text)
    if native is not None and (found is None or native.start() < found.start()):
        return Raised(native.group(1).rsplit("::", 1)[-1], (native.group(2) or "").strip())
    if found is None:
        return None
    return Raised(found.group(1).rsplit(".", 1)[-1], (found.group(2) or "").strip())


def voice(message: str, *, is_failure: bool | None = None) -> Voice:
    """Whom a message speaks of. `is_failure` may be given when an alert rule has decided it already.

    A time-out while waiting for peers is theirs; a time-out of storage or of a data loader is one's own.

    >>> voice("RuntimeError: Connection closed by peer [10.0.0.1]:80").value
    'cascade'
    >>> voice("IndexError: index out of range in self").value
    'origin'
    """
    text = bounded(message)
    if not (is_failure or _FAILURE.search(text) or _TIMED_OUT.search(text) or _LOST_PEER.search(text)):
        return Voice.TEARDOWN if _TEARDOWN.search(text) else Voice.PLAIN
    told = raised(text)
    summary = f"{told.kind}: {told.text}{_more(text, told)}" if told else _QUOTED.sub("", text)
    if _TEARDOWN.search(summary):
        return Voice.TEARDOWN
    return _of_failure(summary, text)


def _more(text: str, told: Raised) -> str:
    """What a library adds in the lines below an exception's first line, up to a blank line, stack or next exception."""
    place = text.find(told.text) if told.text else -1
    if place < 0:
        return ""
    after = text[place + len(told.text) : place + len(told.text) + MAX_MORE]
    return _END_OF_MORE.split(after, maxsplit=1)[0]


def _of_failure(summary: str, text: str) -> Voice:
    """Voice of a message that tells of a failure: its summary decides, its frames say what it was doing."""
    loads = _LOADS.search(summary)
    if _LOST_PEER.search(summary) and not loads:
        return Voice.CASCADE
    if _TIMED_OUT.search(summary) and not loads and _TALKS_TO_PEERS.search(text):
        return Voice.WAITING
    return Voice.ORIGIN
