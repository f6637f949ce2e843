"""What joins this rank's GPU with those of the node's other ranks, asked of CUDA, and of the driver about GPUs that are
hidden from this process: most launchers show each rank its own GPU alone (CUDA_VISIBLE_DEVICES)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from scaffe.collectives.cuda import device
from scaffe.collectives.tuning.device_choice import HOST, NVLINK, ONE_CARD, PCI_EXPRESS, Links

NATIVE_ATOMICS = 3  # CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: NVLink has them, PCI Express does not
BY_READING, BY_NVLINK = 0, 2  # NVML_P2P_CAPS_INDEX_READ, _NVLINK
PORTS = Path("/sys/class/infiniband")


def links_of(number: int, cards: Sequence[str], ports: Path = PORTS) -> Links:
    """Describes the links of this rank's GPU. ``cards``: PCI bus ids of the GPUs of the node's ranks; ``ports``: where
    Linux shows network adapters that move memory themselves (InfiniBand, RoCE)."""
    own = device.card(number)
    kinds = [_link(number, own, other) for other in sorted(set(cards) - {own})]
    within = next((kind for kind in (HOST, PCI_EXPRESS, NVLINK) if kind in kinds), ONE_CARD)
    rates = active_rates(ports)
    return Links(within, len(rates), min(rates, default=0.0))


def active_rates(ports: Path) -> list[float]:
    """The bandwidths of the ports in a folder laid out as /sys/class/infiniband whose state is ACTIVE, in bytes per
    second; 0 for one that does not name it."""
    return [_rate(state.with_name("rate")) for state in ports.glob("*/ports/*/state") if "ACTIVE" in state.read_text()]


def _rate(path: Path) -> float:
    """Of a text such as `400 Gb/sec (4X NDR)`."""
    try:
        return float(path.read_text().split()[0]) * 1e9 / 8
    except (OSError, ValueError, IndexError):
        return 0.0


def _link(number: int, own: str, card: str) -> str:
    """What joins this GPU and another of the node."""
    runtime = device.load().cuda.runtime
    try:
        other = runtime.deviceGetByPCIBusId(card)
        can = runtime.deviceCanAccessPeer(number, other)
    except Exception:  # the other GPU is hidden from this process; CuPy's error has no name without CuPy
        return hidden_link(own, card, _driver())
    if not can:
        return HOST
    return NVLINK if _p2p_attribute()(NATIVE_ATOMICS, number, other) else PCI_EXPRESS


def hidden_link(own: str, card: str, nvml: Any) -> str:
    """What joins two GPUs by the driver's own library, which sees all of a machine's; HOST where it cannot say.
    ``nvml``: libnvidia-ml, already initialised; None where there is none."""
    if nvml is None:
        return HOST
    handles = [ctypes.c_void_p(), ctypes.c_void_p()]
    for bus, handle in zip((own, card), handles, strict=True):
        if nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle)):
            return HOST

    def can(way: int) -> bool:
        status = ctypes.c_int(-1)
        return bool(nvml.nvmlDeviceGetP2PStatus(*handles, way, ctypes.byref(status)) == 0 == status.value)
    if can(BY_NVLINK):
        return NVLINK
    return PCI_EXPRESS if can(BY_READING) else HOST


@cache
def _driver() -> Any:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


@cache
def _p2p_attribute() -> Callable[[int, int, int], int]:
    """cuDeviceGetP2PAttribute, which CuPy does not have: (attribute, source, target) -> value, 0 where it fails."""
    try:
        ask = ctypes.CDLL("libcuda.so.1").cuDeviceGetP2PAttribute
    except (OSError, AttributeError):
        return lambda attribute, source, target: 0

    def asked(attribute: int, source: int, target: int) -> int:
        value = ctypes.c_int(0)
        return value.value if ask(ctypes.byref(value), attribute, source, target) == 0 else 0
    return asked
