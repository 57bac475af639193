"""What kernel and driver lines tell: kind of event, code, device, severity. Patterns as data, most telling first."""

from __future__ import annotations

import re
from dataclasses import dataclass

BDF = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_XID = re.compile(rf"Xid \(?(?:PCI:)?({BDF})\)?: (\d{{1,6}})\b")
_SXID = re.compile(rf"(?:SXid \((?:PCI:)?({BDF})\): (\d{{1,6}})\b)")
_FATAL = re.compile(r"\bFatal\b|fallen off the bus|uncorrectable|Uncontained|double bit", re.I)
_DEVICE = re.compile(rf"\b(?:PCI:)?({BDF})(?![0-9a-fA-F:])")
_NET = re.compile(r"\b((?:mlx\d_\d|ib\d|eth\d|ens\w{1,12}|enp\w{1,12}|bond\d|roce\w{0,8}|hsn\d))\b")
_DISK = re.compile(
    r"(?:\bdev |\bon |\()((?:nvme\w{1,12}|sd[a-z]{1,3}\d{0,3}|dm-\d{1,4}|md\d{1,4}))\b|\b(nvme\d{1,3}(?:n\d{1,3})?)\b"
)

XID_SEVERITY = {
    "critical": {
        48,
        61,
        62,
        64,
        69,
        74,
        79,
        92,
        95,
        109,
        110,
        119,
        120,
        121,
        123,
        136,
        140,
        143,
        144,
        145,
        146,
        147,
        148,
        149,
        150,
        154,
        155,
        156,
        158,
    },
    "info": {43, 45, 66, 106},
}
"""Xids after which the GPU or the node has to be reset or looked at, and those that only tell of another failure."""
NVLINK_XIDS = frozenset({74, 144, 145, 146, 147, 148, 149, 150})
ECC_XIDS = frozenset({48, 63, 64, 92, 94, 95, 140, 171, 172})


@dataclass(frozen=True)
class Told:
    """What a line told."""

    kind: str
    severity: str
    code: int | None = None
    device: str | None = None


@dataclass(frozen=True)
class Words:
    """A kind of event and how its lines read; `hint` is a cheap test that comes first."""

    kind: str
    severity: str
    hint: str
    pattern: re.Pattern[str]


def _words(kind: str, severity: str, hint: str, pattern: str) -> Words:
    return Words(kind, severity, hint, re.compile(pattern, re.I))


WORDS: tuple[Words, ...] = (
    _words("oom_kill", "critical", "oom-kill", r"oom-kill:"),
    _words("oom_kill", "critical", "out of memory", r"out of memory: kill(?:ed)? process|memory cgroup out of memory|invoked"
                                                    r" oom-killer"
                                                    r"|oom_reaper: reaped"),
    _words("oom_kill", "critical", "oom-killer", r"invoked oom-killer"),
    _words("xid", "critical", "fallen off the bus", r"GPU .{0,80}has fallen off the bus|fallen off the bus and is not responding"),
    _words("nvlink", "warning", "nvlink", r"NVRM: .{0,40}knvlink|NVRM: .{0,200}nvlink .{0,60}(?:fail|error|down)"),
    _words("ecc", "critical", "ecc", r"uncorrect(?:ed|able) .{0,40}(?:ecc|memory|error)|(?:double|multi)[ -]bit ecc|EDAC"
                                     r" .{0,80}\bUE\b"),
    _words("ecc", "warning", "ecc", r"correct(?:ed|able) .{0,40}ecc|single[ -]bit ecc"),
    _words("ecc", "warning", "edac", r"EDAC .{0,80}\bCE\b|corrected error"),
    _words("ecc", "critical", "hardware error", r"\[Hardware Error\].{0,80}(?:Uncorrected|deferred)|mce: .{0,20}Uncorrected"),
    _words("ecc", "warning", "hardware error", r"\[Hardware Error\]|mce: \[Hardware Error\]"),
    _words("power", "warning", "insufficient power", r"insufficient power on the pcie slot"),
    _words("power", "critical", "power", r"power (?:supply|cable) .{0,40}(?:fail|lost|bad)|PSU .{0,40}(?:fail|lost)"),
    _words("thermal", "warning", "temperature", r"high temperature|temperature above threshold|over ?temperature|thermal"
                                                r" (?:shutdown|throttl)"),
    _words("thermal", "warning", "thermal", r"thermal (?:shutdown|throttl|trip)|HW slowdown"),
    _words("pcie", "warning", "aer", r"\bAER:|PCIe Bus Error|pcieport .{0,60}error"),
    _words("pcie", "warning", "access_reg", r"ACCESS_REG\(0x[0-9a-f]{1,8}\) .{0,40}failed"),
    _words("pcie", "warning", "peermem", r"nvidia-peermem .{0,80}(?:error|invalid context)"),
    _words("link_down", "warning", "link", r"link (?:is |status )?(?:down|failure|lost)|port .{0,20}link down|carrier lost|lost"
                                           r" carrier|NIC Link is Down|Port: \d{1,3} Link DOWN"),
    _words("link_up", "info", "link", r"link (?:is |becomes )?(?:up|ready)\b|NIC Link is Up|Port: \d{1,3} Link ACTIVE"),
    _words("lockup", "critical", "lockup", r"(?:soft|hard) ?lockup"),
    _words("lockup", "critical", "rcu", r"rcu.{0,40}(?:self-detected stall|detected stalls)"),
    _words("hung_task", "warning", "blocked for more than", r"task .{1,80} blocked for more than \d{1,9} seconds"),
    _words("segfault", "warning", "segfault", r"segfault at "),
    _words("segfault", "warning", "general protection", r"general protection (?:fault|ip)|traps: .{0,60}trap"),
    _words("filesystem", "critical", "read-only", r"remount(?:ed|ing) .{0,40}read-only|re-mounted .{0,20}read-only"),
    _words("filesystem", "critical", "no space", r"no space left on device"),
    _words("filesystem", "critical", "superblock", r"(?:ext4|xfs|btrfs).{0,60}(?:i/o error|corrupt|shut(?:ting)? down)|i/o"
                                                   r" error while"
                                                   r" (?:reading|writing) superblock|superblock write error"),
    _words("filesystem", "critical", "lustre", r"LustreError|lustre: .{0,80}(?:evicted|connection .{0,20}lost|not responding)"),
    _words("filesystem", "warning", "not responding", r"nfs: server .{1,120} not responding"),
    _words("filesystem", "critical", "raid", r"raid array has failed|md/raid.{0,40}(?:fail|disk failure)"),
    _words("io_error", "critical", "i/o", r"buffer i/o error|blk_update_request: .{0,40}error|i/o error, dev|\bi/o error\b"),
    _words("io_error", "critical", "nvme", r"nvme.{0,60}(?:timeout|reset controller|no available path|failing|controller is"
                                           r" down)|nvme"
                                           r" device has no available path"),
    _words("reboot", "warning", "linux version", r"\bLinux version \d"),
    _words("reboot", "critical", "panic", r"kernel panic"),
    _words("pcie", "critical", "mlx5", r"mlx5_core .{0,80}(?:health|device error|fatal)|mlx5_.{0,40}:.{0,60}(?:timeout|failed)"),
)  # fmt: skip


def told_by(line: str) -> Told | None:
    """The event in a kernel line; None when it is about nothing that breaks jobs.

    >>> told_by("NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.")
    Told(kind='xid', severity='critical', code=79, device='0000:05:00')
    """
    line = line[:4096]
    if "Xid" in line:
        told = _xid(line)
        if told is not None:
            return told
    low = line.lower()
    for words in WORDS:
        if words.hint in low and words.pattern.search(line):
            return Told(words.kind, words.severity, None, _device(line, words.kind))
    if "nvrm:" in low or "nvswitch" in low:
        return Told("other", "info", None, _device(line, "xid"))
    return None


def _xid(line: str) -> Told | None:
    found = _SXID.search(line) if "SXid" in line else _XID.search(line)
    if found is None:
        return (
            Told("sxid" if "SXid" in line else "xid", "warning", None, None) if "NVRM: Xid" in line or "nvswitch" in line else None
        )
    device, code = found.group(1), int(found.group(2))
    if "SXid" in line:
        is_fatal = bool(_FATAL.search(line)) and "Non-fatal" not in line
        return Told("sxid", "critical" if is_fatal else "warning", code, device)
    severity = next((name for name, codes in XID_SEVERITY.items() if code in codes), "warning")
    if "Nonfatal" in line and severity == "critical":
        severity = "warning"
    return Told("xid", severity, code, device)


def _device(line: str, kind: str) -> str | None:
    if kind in ("link_down", "link_up"):
        found = _NET.search(line)
        if found:
            return found.group(1)
    if kind in ("io_error", "filesystem"):
        disk = _DISK.search(line)
        return (disk.group(1) or disk.group(2)) if disk else None
    bdf = _DEVICE.search(line)
    return bdf.group(1) if bdf and bdf.group(1).count(":") >= 1 and "." in bdf.group(1) + "." and len(bdf.group(1)) >= 7 else None
