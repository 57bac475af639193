"""Labels of Prometheus-like series: which machine, which device, and what of the rest belongs to the metric's name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

NODE_LABELS = ("Hostname", "hostname", "node", "nodename", "host", "instance", "exported_instance", "machine")
DEVICE_LABELS = ("gpu", "GPU", "GPU_I_ID", "UUID", "gpu_uuid", "device", "port", "ib_port", "cpu", "core", "interface")
IGNORED_LABELS = frozenset({
    "__name__", "job", "modelName", "DCGM_FI_DRIVER_VERSION", "pci_bus_id", "container", "namespace", "pod", "hpc_job",
    "exported_pod", "exported_namespace", "exported_container", "prometheus", "cluster", "GPU_I_PROFILE", "err_code", "err_msg",
    "job_id", "job_user", "job_partition", "ib_sys_guid", "endpoint", "service", "uid", "le", "quantile",
})  # fmt: skip
PORT = re.compile(r":\d{1,5}$")
MAX_EXTRA = 6


@dataclass(frozen=True)
class SeriesPlace:
    """What labels say: the exporter's metric name with its distinguishing labels, the machine and the device."""

    raw: str
    node: str | None
    device: str | None


def place_of(name: str, labels: Mapping[str, str], default_node: str | None) -> SeriesPlace:
    """Where a series belongs.

    The first known node label wins (a port at its end is cut off), the first known device label too; labels that
    distinguish series of one name (`mode="user"`) become part of the name, in the order of their own names.
    """
    node = next((PORT.sub("", labels[key]) for key in NODE_LABELS if labels.get(key)), default_node)
    device_label = next((key for key in DEVICE_LABELS if labels.get(key)), None)
    device = labels[device_label] if device_label else None
    others = [
        f"{key}={value}"
        for key, value in sorted(labels.items())
        if key not in IGNORED_LABELS and key not in NODE_LABELS and key not in DEVICE_LABELS and value
    ]
    if not others:
        return SeriesPlace(name, node, device)
    kept = ",".join(others[:MAX_EXTRA])[:120]
    # The counter's ending stays at the end, so that the name still says that it counts.
    if name.endswith("_total"):
        return SeriesPlace(f"{name.removesuffix('_total')}[{kept}]_total", node, device)
    return SeriesPlace(f"{name}[{kept}]", node, device)


def read_labels(text: str) -> dict[str, str]:
    """Labels between braces, `a="b",c="d"`, with their escapes undone. Raises ValueError when they are broken."""
    labels: dict[str, str] = {}
    for key, value in _pairs(text):
        labels[key] = value
    return labels


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(text)
    while position < end:
        while position < end and text[position] in ", \t":
            position += 1
        if position >= end:
            return
        equals = text.find("=", position)
        if equals < 0 or equals + 1 >= end or text[equals + 1] != '"':
            raise ValueError("label without a quoted value")
        key = text[position:equals].strip()
        value, position = _quoted(text, equals + 2)
        yield key, value


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The string that begins at `start`, after its opening quote, and the position after its closing quote."""
    parts: list[str] = []
    position = start
    while position < len(text):
        char = text[position]
        if char == '"':
            return "".join(parts), position + 1
        if char == "\\" and position + 1 < len(text):
            following = text[position + 1]
            parts.append("\n" if following == "n" else following)
            position += 2
            continue
        parts.append(char)
        position += 1
    raise ValueError("label value without an end")
