"""Bytes of a device's memory that training takes, and which of them no plan moves."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.nets.activation_memory import bytes_beside_blobs, training_bytes
from scaffe.nets.memory import pieces
from scaffe.nets.memory.fixed import blobs_outside
from scaffe.nets.memory.parts import Planned
from scaffe.nets.net import Net


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
    return CHUNK.itemsize * sum(-(-n_elems // CHUNK_ELEMS) + 1 + n_elems * item // pieces.PIECE_BYTES
                                for n_elems in (param.blob.n_elems for param in net.params.params))


def scratch_bytes() -> int:
    """Of what convolutions and others work in on the current device, and of what recordings have beside."""
    from scaffe.layers.kernels.cuda.arena import arena
    from scaffe.layers.kernels.cuda.recording import AHEAD_BYTES

    return arena.n_bytes + AHEAD_BYTES
