"""Finds out how the cards of a node's ranks are joined, and how many ports lead out of the node."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from scaffe.collectives.cuda import device
from scaffe.collectives.tuning.links import HOST, NVLINK, ONE_CARD, PCI_EXPRESS, Links

NATIVE_ATOMICS = 3  # CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: NVLink has them, PCI Express does not
PORTS = Path("/sys/class/infiniband")


def links_of(number: int, cards: Sequence[str], ports: Path = PORTS) -> Links:
    """Describes the links of this rank's GPU.

    Args:
        number: the GPU's, in this process.
        cards: PCI bus ids of the GPUs of the node's ranks.
        ports: where Linux shows network adapters that move memory themselves (InfiniBand, RoCE).
    """
    others = sorted(set(cards) - {device.card(number)})
    kinds = [_link(number, other) for other in others]
    within = next((kind for kind in (HOST, PCI_EXPRESS, NVLINK) if kind in kinds), ONE_CARD)
    return Links(within, n_active(ports))


def n_active(ports: Path) -> int:
    """Counts the ports in a folder laid out as /sys/class/infiniband whose state is ACTIVE."""
    return sum("ACTIVE" in state.read_text() for state in ports.glob("*/ports/*/state"))


def _link(number: int, card: str) -> str:
    """What joins this GPU and another of the node."""
    runtime = device.load().cuda.runtime
    try:
        other = runtime.deviceGetByPCIBusId(card)
        can = runtime.deviceCanAccessPeer(number, other)
    except Exception:  # the other rank's GPU is hidden from this process; CuPy's error has no name without CuPy
        return HOST
    if not can:
        return HOST
    return NVLINK if _p2p_attribute()(NATIVE_ATOMICS, number, other) else PCI_EXPRESS


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
