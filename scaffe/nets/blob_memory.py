"""Which blobs of a net share memory, in which steps it is used, and offsets for it in one arena."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scaffe.layers.base.blob import Blob
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node

ALIGN_BYTES = 256  # a device's own granularity, and a multiple of every vector's


@dataclass(frozen=True)
class Lifetime:
    """An array's length in bytes, and the first and last step of an iteration in which its contents are needed."""

    n_bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Place arrays in an arena so that two that are needed in the same step do not overlap.

    Greedy: the largest first, each at the lowest offset that fits. For the nets in benchmarks/ the total is within
    a tenth of what the fullest step needs, so that best fit would save little. Returns each array's offset and the
    arena's length, both in bytes."""
    order = sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].n_bytes)
    met = {i: [j for j, other in enumerate(lifetimes) if i != j and each.meets(other)]
           for i, each in enumerate(lifetimes)}
    return lowest(order, [aligned(each.n_bytes) for each in lifetimes], met)


def lowest(order: Sequence[int], lengths: Sequence[int], met: Mapping[int, Sequence[int]]) -> tuple[list[int], int]:
    """Place arrays one after another, each at the lowest offset at which it overlaps none that it meets. Returns
    offsets, and the length of all, in bytes.

    Args:
        order: their numbers; those that are left out get offset 0, and take nothing.
        lengths: in bytes.
        met: for each in the order, the others that are in memory in some step in which it is.
    """
    offsets, n_bytes, placed = [0] * len(lengths), 0, set[int]()
    for number in order:
        start = 0
        for offset, end in sorted((offsets[i], offsets[i] + lengths[i]) for i in met[number] if i in placed):
            if offset >= start + lengths[number]:
                break
            start = max(start, end)
        offsets[number] = start
        n_bytes = max(n_bytes, start + lengths[number])
        placed.add(number)
    return offsets, n_bytes


def aligned(n_bytes: int) -> int:
    """The length in bytes rounded up to a multiple of ALIGN_BYTES: what an array takes in the arena."""
    return -(-n_bytes // ALIGN_BYTES) * ALIGN_BYTES


@dataclass
class BlobMemory:
    """The data, or the diff, of a group of blobs that share memory. ``steps``: the steps of an iteration that read or
    write it, as ``net.steps`` numbers them."""

    blob: Blob
    steps: list[int] = field(default_factory=list)

    @property
    def lifetime(self) -> Lifetime:
        return Lifetime(self.blob.n_elems * self.blob.dtype.itemsize, min(self.steps), max(self.steps))


def forward_steps(net: Net, index: int) -> list[int]:
    """The layer's own step of forward, and that of the layer it is fused to."""
    return [index, index - net.nodes[index].fused_offset]


def backward_steps(net: Net, index: int) -> list[int]:
    """The layer's own steps of backward, and those of the last layer it is fused with, if one fused backward computes
    all."""
    first = index - net.nodes[index].fused_offset
    head = net.nodes[first]
    last = first + head.layer.n_fused_back
    return [*net.steps.backward(index), *net.steps.backward(max(index, last))]


def backward_block(net: Net, index: int) -> range:
    """The layers that run backward in one pass with this one, in the step of the last of them."""
    first = index - net.nodes[index].fused_offset
    last = first + net.nodes[first].layer.n_fused_back
    return range(first, last + 1) if index <= last else range(index, index + 1)


def written_diffs(nodes: Iterable[Node]) -> list[Blob]:
    """Bottoms whose diff is written by their layer's backward."""
    return [blob for node in nodes if node.needs_backward and not node.layer.shares_diff
            for blob, wanted in zip(node.bottoms, node.propagate_down, strict=False) if wanted]


def memory_owners(net: Net, shares: str) -> dict[int, Blob]:
    """For each blob, by id, the blob that owns its memory: layers such as Split give their tops the bottom's memory.
    Diffs also share it by ``net.passed_diffs``. ``shares``: the layers' attribute that says so:
    "shares_data" or "shares_diff"."""
    owner: dict[int, Blob] = {}
    for node in net.nodes:
        for top in node.tops:
            passed_on = getattr(node.layer, shares) and node.bottoms
            owner.setdefault(id(top), owner[id(node.bottoms[0])] if passed_on else top)
    for _, giver, blob in passed_diffs(net) if shares == "shares_diff" else ():
        owner[id(blob)] = owner[id(giver)]
    return owner


class Giver(NamedTuple):
    """A layer's blob whose diff may have its memory from another one."""

    layer: int
    giver: Blob
    blob: Blob


def diff_givers(net: Net) -> list[Giver]:
    """A sum's top could give its diff's memory to each bottom, whose diffs are equal; a Split's bottom to the first
    top, to whose diff the others are added. What gives comes before that to which it does."""
    able = [(index, node) for index, node in enumerate(net.nodes) if node.needs_backward]
    return [*(Giver(index, node.tops[0], blob) for index, node in reversed(able) if node.layer.passes_diff
              for blob in node.bottoms if blob is not node.tops[0]),
            *(Giver(index, node.bottoms[0], node.tops[0]) for index, node in able
              if node.layer.adds_in_place and node.propagate_down[0])]


def passed_diffs(net: Net) -> list[Giver]:
    """Those of them that do, by ``net.passed_diffs``."""
    return [each for each in diff_givers(net) if net.passed_diffs.get(id(each.blob)) == len(net.nodes)]


def runs_fused(net: Net, node: Node) -> bool:
    """Whether an in-place layer's backward is part of the pass of the layer it is fused to, and so writes no diff."""
    head = net.nodes[net.nodes.index(node) - node.fused_offset]
    return 0 < node.fused_offset <= head.layer.n_fused_back


def kept_blobs(net: Net) -> dict[int, Blob]:
    """The blobs that keep memory of their own, by id: tops of sources and losses, and the net's outputs."""
    tops = [top for node in net.nodes for top, weight in zip(node.tops, node.loss_weights, strict=False)
            if weight or node.is_source]
    return {id(blob): blob for blob in (*tops, *(net.blobs[name] for name in net.output_names))}
