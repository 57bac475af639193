"""One name, unit and kind for each metric, whatever exporter wrote it.

Names that are not in the table keep their own, with the unit read from their end (`_bytes`, `_seconds_total` …), so an
unknown exporter is read as well; the table only makes equal what is equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class MetricName:
    """Canonical name, unit, whether it counts up for ever, and what to multiply raw values by."""

    name: str
    unit: str | None = None
    is_counter: bool = False
    scale: float = 1.0
    has_edges_only: bool = False
    """True for DCGM's last Xid: a gauge that sticks until restart, so that only its changes mean something."""


def _same(canonical: str, unit: str, *raw: str, is_counter: bool = False, scale: float = 1.0) -> dict[str, MetricName]:
    return {name.lower(): MetricName(canonical, unit, is_counter, scale) for name in raw}


KNOWN: dict[str, MetricName] = {
    **_same("gpu.util.pct", "pct", "DCGM_FI_DEV_GPU_UTIL", "dcgm_gpu_utilization", "gpu_device_utilization", "gpu_util"),
    **_same("gpu.mem_copy_util.pct", "pct", "DCGM_FI_DEV_MEM_COPY_UTIL", "dcgm_mem_copy_utilization", "mem_util"),
    **_same("gpu.gr_active", "ratio", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "graphics_engine_active_ratio"),
    **_same("gpu.sm_active", "ratio", "DCGM_FI_PROF_SM_ACTIVE", "dcgm_sm_active", "sm_active_ratio"),
    **_same("gpu.sm_occupancy", "ratio", "DCGM_FI_PROF_SM_OCCUPANCY", "dcgm_sm_occupancy", "sm_occupancy_ratio"),
    **_same("gpu.tensor_active", "ratio", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "dcgm_tensor_active", "tensorcore_active"),
    **_same("gpu.fp64_active", "ratio", "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "dcgm_fp64_active"),
    **_same("gpu.fp32_active", "ratio", "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "dcgm_fp32_active"),
    **_same("gpu.fp16_active", "ratio", "DCGM_FI_PROF_PIPE_FP16_ACTIVE", "dcgm_fp16_active"),
    **_same("gpu.dram_active", "ratio", "DCGM_FI_PROF_DRAM_ACTIVE", "dcgm_dram_active", "hbm_mem_bw_util"),
    **_same("gpu.power.w", "W", "DCGM_FI_DEV_POWER_USAGE", "dcgm_power_usage", "gpu_power_draw", "power_draw"),
    **_same("gpu.energy.j", "J", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", is_counter=True, scale=1e-3),
    **_same("gpu.temp.c", "C", "DCGM_FI_DEV_GPU_TEMP", "dcgm_gpu_temp", "dcgm_gpu_temperature", "temperature"),
    **_same("gpu.mem_temp.c", "C", "DCGM_FI_DEV_MEMORY_TEMP", "dcgm_memory_temp"),
    **_same("gpu.sm_clock.mhz", "MHz", "DCGM_FI_DEV_SM_CLOCK", "dcgm_sm_clock", "gpu_frequency_mhz"),
    **_same("gpu.mem_clock.mhz", "MHz", "DCGM_FI_DEV_MEM_CLOCK", "dcgm_mem_clock"),
    **_same("gpu.fb_used.mib", "MiB", "DCGM_FI_DEV_FB_USED"),
    **_same("gpu.fb_free.mib", "MiB", "DCGM_FI_DEV_FB_FREE"),
    **_same("gpu.mem_used.pct", "pct", "mem_used_percent"),
    **_same("gpu.mem_used.ratio", "ratio", "gpu_memory_utilization"),
    **_same("gpu.nvlink_tx.bytes_s", "B/s", "DCGM_FI_PROF_NVLINK_TX_BYTES", "dcgm_nvlink_tx_bytes", "nvlink_tx_bytes"),
    **_same("gpu.nvlink_rx.bytes_s", "B/s", "DCGM_FI_PROF_NVLINK_RX_BYTES", "dcgm_nvlink_rx_bytes", "nvlink_rx_bytes"),
    **_same("gpu.nvlink.count", "count", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", is_counter=True),
    **_same("gpu.pcie_tx.bytes_s", "B/s", "DCGM_FI_PROF_PCIE_TX_BYTES", "dcgm_pcie_tx_bytes", "pcie_tx_bytes"),
    **_same("gpu.pcie_rx.bytes_s", "B/s", "DCGM_FI_PROF_PCIE_RX_BYTES", "dcgm_pcie_rx_bytes", "pcie_rx_bytes"),
    **_same("gpu.pcie_replay", "count", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", is_counter=True),
    **_same("gpu.ecc_sbe_volatile", "count", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "dcgm_ecc_sbe_volatile_total", is_counter=True),
    **_same("gpu.ecc_dbe_volatile", "count", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "dcgm_ecc_dbe_volatile_total", is_counter=True),
    **_same("gpu.ecc_sbe", "count", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "dcgm_ecc_sbe_aggregate_total", is_counter=True),
    **_same("gpu.ecc_dbe", "count", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "dcgm_ecc_dbe_aggregate_total", is_counter=True),
    **_same("gpu.remapped_rows_correctable", "count", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", is_counter=True),
    **_same("gpu.remapped_rows_uncorrectable", "count", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", is_counter=True),
    **_same("gpu.row_remap_failure", "count", "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    **_same("gpu.throttle_reasons", "mask", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
    # Microseconds in one of dcgm-exporter's lists, nanoseconds in the other: the unit stays unsaid, peers share it.
    **_same("gpu.power_violation", "ticks", "DCGM_FI_DEV_POWER_VIOLATION", "dcgm_power_violation", is_counter=True),
    **_same("gpu.thermal_violation", "ticks", "DCGM_FI_DEV_THERMAL_VIOLATION", "dcgm_thermal_violation", is_counter=True),
    **_same("ib.xmit.bytes_s", "B/s", "ib_port_xmit_data"),
    **_same("ib.rcv.bytes_s", "B/s", "ib_port_rcv_data"),
    **_same("ib.xmit.bytes", "B", "node_infiniband_port_data_transmitted_bytes_total", is_counter=True),
    **_same("ib.rcv.bytes", "B", "node_infiniband_port_data_received_bytes_total", is_counter=True),
    **_same("cpu.s", "s", "node_cpu_seconds_total", is_counter=True),
    **_same("node.power.w", "W", "power_w", "node_power_watts"),
    "dcgm_fi_dev_xid_errors": MetricName("gpu.xid", "code", has_edges_only=True),
}  # fmt: skip
"""Exporters' names in lower case; see NVIDIA's DCGM field list and the exporters' own documentation."""

UNIT_ENDS: tuple[tuple[str, str], ...] = (
    ("_bytes_per_second", "B/s"), ("_bytes", "B"), ("_milliseconds", "ms"), ("_seconds", "s"), ("_watts", "W"),
    ("_joules", "J"), ("_celsius", "C"), ("_percent", "pct"), ("_pct", "pct"), ("_ratio", "ratio"), ("_hertz", "Hz"),
    ("_mhz", "MHz"), ("_mib", "MiB"), ("_packets", "packets"), ("_errors", "count"), ("_faults", "count"),
    ("_switches", "count"), ("_dropped", "packets"), (".pct", "pct"), (".w", "W"), (".c", "C"), (".mib", "MiB"),
    (".mhz", "MHz"), ("_w", "W"),
)  # fmt: skip

_WANDB = re.compile(r"^system[./]gpu[._/](\d+)[._/](gpu|powerWatts|temp|memoryAllocated)$")
_WANDB_NAMES = {"gpu": "gpu.util.pct", "powerWatts": "gpu.power.w", "temp": "gpu.temp.c", "memoryAllocated": "gpu.mem_used.pct"}


@lru_cache(maxsize=4096)
def canonical(raw: str, is_counter: bool | None = None) -> MetricName:
    """What a raw name means. `is_counter` is the file's own word where the format has one (`# TYPE x counter`).

    >>> canonical("DCGM_FI_DEV_POWER_USAGE").name, canonical("network_receive_bytes_total").unit
    ('gpu.power.w', 'B')
    """
    known = KNOWN.get(raw.lower())
    if known is not None:
        return known
    counts = raw.endswith("_total") if is_counter is None else is_counter
    stem = raw.removesuffix("_total")
    unit = next((unit for end, unit in UNIT_ENDS if stem.lower().endswith(end)), None)
    return MetricName(raw, unit, counts)


def device_in_name(raw: str) -> tuple[str, str | None]:
    """A name that holds a device index, taken apart: `system.gpu.3.temp` is gpu.temp.c of device 3."""
    found = _WANDB.match(raw)
    return (_WANDB_NAMES[found[2]], found[1]) if found else (raw, None)
