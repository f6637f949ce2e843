"""What a net's steps cost in seconds, estimated, and what stays in host memory in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.kernels.cpu.arrays import LINE
from scaffe.memory.problem.tensors import ActivationTensor
from scaffe.nets.blob_memory import memory_owners, runs_fused, written_diffs
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node
from scaffe.nets.summary import MULTIPLY_ADDS

BYTES_A_SECOND = 4e9  # that one core reads and writes


@dataclass(frozen=True)
class Speed:
    """How fast layers are computed.

    Attributes:
        products: multiply-adds a second in float32. Plans depend mostly on the ratios between layers.
        n_bytes: bytes a second that a layer without products reads and writes.
    """

    products: float
    n_bytes: float


CORE = Speed(40e9, BYTES_A_SECOND)


def estimated_seconds(net: Net, speed: Speed = CORE, backward: bool = True) -> tuple[float, ...]:
    """Seconds of each step of ``net.steps``, estimated from multiply-adds and bytes. Gradients of parameters take as
    long as forward, and so do gradients of bottoms; updates take no time here. ``backward``: whether the net runs
    backward; if not, only the steps of forward are returned."""
    forward = [_forward(node, speed) for node in net.nodes]
    if not backward:
        return tuple(forward)
    seconds = [*forward, *[0.0] * (net.steps.n_steps - len(forward))]
    for layer, node in enumerate(net.nodes):
        steps, rows = net.steps.backward(layer), net.steps.rows(layer)
        for step in steps if node.needs_backward else ():
            seconds[step] = forward[layer] * ((not rows) + any(node.propagate_down)) / len(steps)
        for step in rows:
            seconds[step] = forward[layer] / len(rows)
    return tuple(seconds)


def _forward(node: Node, speed: Speed) -> float:
    n_bytes = sum(blob.n_elems * blob.dtype.itemsize for blob in (*node.bottoms, *node.tops))
    count = MULTIPLY_ADDS.get(node.param.type)
    passes_on = node.layer.shares_data or node.fused_offset
    return (count(node) / speed.products if count else 0.0) + (0.0 if passes_on else n_bytes / speed.n_bytes)


OURS = "scaffe.layers."


def unmovable_bytes(net: Net, activations: Sequence[ActivationTensor], backward: bool = True) -> int:
    """Bytes of host memory that no plan moves.

    The sum of: parameters and gradients; blobs outside the plan; what layers and their plans keep; batches that reader
    threads hold; working memory; what layers written in NumPy allocate in passes.
    """
    params = (1 + backward) * net.params.n_elems * net.params.dtype.itemsize
    batches = sum(getattr(node.layer, "read_bytes", 0) for node in net.nodes)
    layers = kept_by_layers(net) + _working(net) + made_in_passes(net)
    return params + batches + blobs_outside(net, activations, backward) + layers


def _working(net: Net) -> int:
    """Working memory that convolutions share: weights in another layout, and tiles of images."""
    weights = [_n_bytes(blob) for node in net.nodes for blob in node.layer.blobs if blob.ndim > 2]
    most = {"weights": max(weights, default=0)}
    for plan in (kept for node in net.nodes for kept in vars(node.layer).values() if hasattr(kept, "working_bytes")):
        for name, n_bytes in plan.working_bytes().items():
            most[name] = max(most.get(name, 0), n_bytes)
    return sum(most.values())


def blobs_outside(net: Net, activations: Sequence[ActivationTensor], backward: bool) -> int:
    """Bytes of the net's blobs that are not in the plan."""
    moved = [{id(each.blob) for each in activations if each.is_diff == is_diff} for is_diff in (False, True)]
    written = {id(blob) for blob in written_diffs(net.nodes)}
    n_bytes = 0
    for is_diff, shares in enumerate(("shares_data", "shares_diff")[:1 + backward]):
        for key, blob in memory_owners(net, shares).items():
            is_own = id(blob) == key and key not in moved[is_diff]
            n_bytes += _n_bytes(blob) if is_own and (not is_diff or key in written) else 0
    return n_bytes


def kept_by_layers(net: Net) -> int:
    """Bytes of the arrays that layers and their kernels' plans hold in addition to the net's blobs and parameters. A
    blob of a layer that runs in another one's passes gets no memory, such as an in-place Scale's copy behind batch
    norm."""
    seen = {id(blob) for node in net.nodes for blob in (*node.bottoms, *node.tops, *node.layer.blobs)}
    seen |= {id(value) for node in net.nodes if runs_fused(net, node) for value in vars(node.layer).values()
             if isinstance(value, Blob)}
    return sum(_array_bytes(vars(node.layer).values(), seen) for node in net.nodes)


def _array_bytes(values: Iterable[Any], seen: set[int]) -> int:
    n_bytes = 0
    for value in values:
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Blob):
            n_bytes += _n_bytes(value)
        elif isinstance(value, np.ndarray):
            n_bytes += value.nbytes if _is_whole(value) else 0
        else:
            n_bytes += _array_bytes(_inside(value), seen)
    return n_bytes


def _is_whole(array: np.ndarray) -> bool:
    """Whether an array is no view of another's memory: it owns its memory, or ``zeros`` has made it."""
    base = array.base
    return base is None or (isinstance(base, np.ndarray) and base.nbytes - array.nbytes == LINE)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value
        return
    where = type(value).__module__ or ""
    if where.startswith(OURS) and not where.startswith(f"{OURS}base"):
        yield from getattr(value, "__dict__", {}).values()


def _n_bytes(blob: Blob) -> int:
    return blob.n_elems * blob.dtype.itemsize


def made_in_passes(net: Net) -> int:
    """Bytes of the arrays that layers allocate in passes: those that outlive the pass, and the others of the layer that
    has most."""
    persistent, others = 0.0, [0.0]
    for node in net.nodes:
        layer, n_elems = node.layer, max((blob.n_elems for blob in (*node.bottoms, *node.tops)), default=0)
        persistent += layer.persistent_temporaries * n_elems
        others.append((layer.temporaries - layer.persistent_temporaries) * n_elems)
    return ceil(persistent + max(others)) * net.params.dtype.itemsize
