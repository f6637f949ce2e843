"""Layers' times beside what a device could do: bytes and operations against its peaks (the roofline, Williams,
Waterman and Patterson, CACM 52(4), 2009). Arithmetic on given numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.kernels.device import LANES
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node
from scaffe.nets.summary import products

TENSOR_OPERATIONS = {70: 1024, 75: 1024, 80: 2048, 86: 1024, 89: 1024, 90: 4096, 100: 8192}
"""Of half types, a clock and multiprocessor, by compute capability: NVIDIA's dense rates (whitepapers of V100, Turing,
A100, GA10x, Ada, H100, Blackwell), an addition and a multiplication being two."""


class Peaks(NamedTuple):
    """What a device does in a second at the most.

    Attributes:
        operations: of products in the layers' type.
        n_bytes: read and written.
    """

    operations: float
    n_bytes: float

    def seconds(self, operations: float, n_bytes: float) -> float:
        """The least time for so many operations and bytes."""
        return max(operations / self.operations, n_bytes / self.n_bytes)


def operations_a_clock(capability: int, dtype: np.dtype, tf32: bool) -> int | None:
    """Operations of a multiprocessor a clock in products of a type; None for a card that is not known. TF32 has half
    the rate of half types, from compute capability 8.0 on."""
    if dtype.itemsize == 4 and not (tf32 and capability >= 80):
        return 2 * LANES
    found = TENSOR_OPERATIONS.get(capability)
    return found if found is None or dtype.itemsize == 2 else found // 2


class Work(NamedTuple):
    """Of one pass of a layer: operations of its products, and bytes of the arrays that it reads and writes, once
    each."""

    operations: float
    n_bytes: int


def work(node: Node, multiply_adds: tuple[int, int] = (0, 0)) -> tuple[Work, Work]:
    """A layer's, by itself, forward and backward. ``multiply_adds``: of its products, both ways."""
    layer, params = node.layer, node.layer.blobs
    idle = layer.shares_data and layer.idle_in_place
    forward = 0 if idle else _bytes([*node.bottoms, *node.tops, *params])
    wanted = [blob for blob, wants in zip(node.bottoms, node.propagate_down, strict=False) if wants]
    reads = [*(node.bottoms if layer.reads_bottoms else ()), *(node.tops if layer.reads_tops else ())]
    back = 0 if layer.shares_diff or not node.needs_backward else _bytes([*node.tops, *wanted]) + _bytes(reads) + (
        2 * _bytes(params))
    return Work(2 * multiply_adds[0], forward), Work(2 * multiply_adds[1], back)


def _bytes(blobs: Iterable[Blob]) -> int:
    distinct = {id(blob): blob for blob in blobs}.values()
    return sum(blob.n_elems * blob.dtype.itemsize for blob in distinct)


def roofline_lines(net: Net, forward: Mapping[int, float], backward: Mapping[int, float], peaks: Peaks,
                   n_images: int) -> list[str]:
    """A line for each layer that moves something: images/s, GB/s, and share of the roofline, both ways.

    Args:
        forward, backward: seconds of one pass of each layer, by its index.
        n_images: of a pass.
    """
    counts, lines = products(net), []
    for index, node in enumerate(net.nodes):
        both = zip(("forward", "backward"), work(node, counts.get(node.name, (0, 0))), (forward, backward), strict=True)
        ways = [f"{way}: {_speed(own, seconds[index], peaks, n_images)}" for way, own, seconds in both
                if own.n_bytes and seconds.get(index)]
        if ways:
            lines.append("\t".join([f"{node.name:>10}", *ways]))
    return lines


def _speed(own: Work, seconds: float, peaks: Peaks, n_images: int) -> str:
    return (f"{n_images / seconds:,.0f} images/s, {own.n_bytes / seconds / 1e9:.3g} GB/s, "
            f"{peaks.seconds(*own) / seconds:.0%} of the roofline.")
