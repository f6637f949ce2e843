"""What a run needs to go on: ``.solverstate``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from scaffe.errors import UserError
from scaffe.files import hdf5
from scaffe.files.atomic import replacing
from scaffe.files.blobs import blob_array, blob_parts, fields_around, read_with_blobs
from scaffe.files.wire import delimited
from scaffe.proto import caffe_pb2

HISTORY, HISTORY_TAG = 3, b"\x1a"  # field 3 of SolverState


@dataclass
class SolverState:
    """A solver's state.

    Attributes:
        iteration: iterations done.
        learned_net: the trained net's file.
        current_step: steps of the learning rate policy behind us.
        history: the update rule's arrays, float32, in Caffe's order.
        streams: each rank's place in its random stream (ours; Caffe passes it over).
    """

    iteration: int
    learned_net: str = ""
    current_step: int = 0
    history: list[np.ndarray] = field(default_factory=list)
    streams: list[bytes] = field(default_factory=list)


def write_state(path: str | Path, state: SolverState) -> None:
    """Write a state as Caffe 1.0 does; HDF5 where the name ends in ``.h5``. Raises UserError."""
    if str(path).endswith(".h5"):
        hdf5.write_state(path, state)
        return
    message = caffe_pb2.SolverState(iter=state.iteration, learned_net=state.learned_net,
                                    current_step=state.current_step, streams=state.streams)
    head, tail = fields_around(message, HISTORY)
    with replacing(path) as file:
        file.write(head)
        for array in state.history:
            n_bytes, pieces = blob_parts(array)
            for piece in (delimited(HISTORY_TAG, n_bytes), *pieces):
                file.write(piece)
        file.write(tail)


def read_state(path: str | Path) -> SolverState:
    """A state from either kind of file. Raises UserError: no such file, truncated, or not a solver state."""
    if str(path).endswith(".h5"):
        return SolverState(**hdf5.read_state(path))
    message, blobs = read_with_blobs(path, caffe_pb2.SolverState)
    try:
        history = [blob_array(blobs[blob.num]) for blob in message.history]
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    if not message.HasField("iter"):
        raise UserError(f"{path}: holds no iteration; a .solverstate was expected")
    return SolverState(message.iter, message.learned_net, message.current_step, history, list(message.streams))
