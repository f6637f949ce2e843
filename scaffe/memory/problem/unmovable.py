"""Bytes of a net's memory that no plan moves: parameters, what layers keep, blobs that others read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.kernels.cpu.arrays import LINE
from scaffe.memory.problem import chunks
from scaffe.memory.problem.tensors import Planned
from scaffe.nets.activation_memory import bytes_beside_blobs, memory_owners, runs_fused, training_bytes, written_diffs
from scaffe.nets.layer_memory import made_in_passes
from scaffe.nets.net import Net

OURS = "scaffe.layers."


def fixed_bytes(net: Net, planned: Sequence[Planned], backward: bool = True) -> int:
    """The sum of: parameters and gradients; blobs outside the plan; what layers and their plans keep; batches that
    reader threads hold; working memory; what layers of NumPy's make in passes.

    Args:
        net: a built net.
        planned: the arrays that the plan moves.
        backward: whether the net runs backward too, and has gradients.
    """
    params = (1 + backward) * net.params.n_elems * net.params.dtype.itemsize
    batches = sum(getattr(node.layer, "read_bytes", 0) for node in net.nodes)
    layers = kept_by_layers(net) + _working(net) + made_in_passes(net)
    return params + batches + blobs_outside(net, planned, backward) + layers


def _working(net: Net) -> int:
    """What convolutions compute with and leave to the next one: turned weights, and tiles of images."""
    weights = [_n_bytes(blob) for node in net.nodes for blob in node.layer.blobs if blob.ndim > 2]
    most = {"weights": max(weights, default=0)}
    for plan in (kept for node in net.nodes for kept in vars(node.layer).values() if hasattr(kept, "working_bytes")):
        for name, n_bytes in plan.working_bytes().items():
            most[name] = max(most.get(name, 0), n_bytes)
    return sum(most.values())


def blobs_outside(net: Net, planned: Sequence[Planned], backward: bool) -> int:
    """Bytes of the net's blobs that are not in the plan."""
    moved = {id(each.blob) for each in planned if not each.is_diff}, {id(each.blob) for each in planned if each.is_diff}
    written = {id(blob) for blob in written_diffs(net.nodes)}
    n_bytes = 0
    for is_diff, shares in enumerate(("shares_data", "shares_diff")[:1 + backward]):
        for key, blob in memory_owners(net, shares).items():
            is_own = id(blob) == key and key not in moved[is_diff]
            n_bytes += _n_bytes(blob) if is_own and (not is_diff or key in written) else 0
    return n_bytes


def kept_by_layers(net: Net) -> int:
    """Bytes of the arrays that layers and their kernels' plans hold beside the net's blobs and parameters. A blob of a
    layer that runs in another one's passes gets no memory: an in-place Scale's copy behind batch norm, for one."""
    seen = {id(blob) for node in net.nodes for blob in (*node.bottoms, *node.tops, *node.layer.blobs)}
    seen |= {id(value) for node in net.nodes if runs_fused(net, node) for value in vars(node.layer).values()
             if isinstance(value, Blob)}
    return sum(_held(vars(node.layer).values(), seen) for node in net.nodes)


def _held(values: Iterable[Any], seen: set[int]) -> int:
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
            n_bytes += _held(_inside(value), seen)
    return n_bytes


def _is_whole(array: np.ndarray) -> bool:
    """Whether an array is no view of another's memory: it owns its own, or is what ``zeros`` has made."""
    base = array.base
    return base is None or (isinstance(base, np.ndarray) and base.nbytes - array.nbytes == LINE)


def _inside(value: Any) -> Iterator[Any]:
    """What a container, or an object of ours that belongs to a layer, holds."""
    if isinstance(value, (list, tuple)):
        yield from value
        return
    where = type(value).__module__ or ""
    if where.startswith(OURS) and not where.startswith(f"{OURS}base"):
        yield from getattr(value, "__dict__", {}).values()


def _n_bytes(blob: Blob) -> int:
    return blob.n_elems * blob.dtype.itemsize


def whole_on_device(net: Net) -> int:
    """Of training without a limit; histories not counted.

    Args:
        net: a net on the current device, after ``fuse_layers``.
    """
    return training_bytes(net, 0) + scratch_bytes()


def fixed_on_device(net: Net, planned: Sequence[Planned]) -> int:
    """Of what a plan leaves where it is; histories not counted.

    Args:
        net: as above.
        planned: the arrays that the plan moves.
    """
    return bytes_beside_blobs(net, 0) + blobs_outside(net, planned, True) + scratch_bytes()


def fixed_forward_on_device(net: Net, planned: Sequence[Planned]) -> int:
    """As ``fixed_on_device``, of a net that runs forward alone, without gradients of parameters."""
    gradients = net.params.n_elems * net.params.dtype.itemsize
    return bytes_beside_blobs(net, 0) - gradients + blobs_outside(net, planned, False) + scratch_bytes()


def update_bytes(net: Net) -> int:
    """Of what updates know of a net's parameters, chunk by chunk; at the most, where a memory plan divides them into
    pieces, which may each end within a chunk."""
    from scaffe.layers.kernels.cuda.updates import CHUNK, CHUNK_ELEMS

    item = net.params.dtype.itemsize
    return CHUNK.itemsize * sum(-(-n_elems // CHUNK_ELEMS) + 1 + n_elems * item // chunks.PIECE_BYTES
                                for n_elems in (param.blob.n_elems for param in net.params.params))


def scratch_bytes() -> int:
    """Of what convolutions and others work in on the current device, and of what recordings have beside."""
    from scaffe.layers.kernels.cuda.arena import arena
    from scaffe.layers.kernels.cuda.recording import AHEAD_BYTES

    return arena.n_bytes + AHEAD_BYTES
