"""Solver states, from which a run resumes: ``.solverstate``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.atomic_files import replacing
from scaffe.errors import UserError
from scaffe.files import hdf5
from scaffe.files.blobs import blob_array, blob_parts, fields_around, read_with_blobs
from scaffe.files.wire import FIXED32
from scaffe.input_files import map_input
from scaffe.proto import caffe_pb2
from scaffe.proto.byte_text import path_of, text_of_path
from scaffe.proto.raw_strings import delimited, varint

HISTORY, HISTORY_TAG = 3, b"\x1a"  # field 3 of SolverState
CHECKSUM_TAG = varint(1703 << 3 | FIXED32)  # field 1703, always the last


@dataclass
class SolverState:
    """A solver's state. Fields marked (ours) are extensions, which Caffe ignores; a file may lack them.

    Attributes:
        iteration: number of iterations done.
        learned_net: name of the file with the weights.
        current_step: number of learning rate steps already taken by the policy.
        history: the update rule's arrays, float32, in Caffe's order. Those of a file are mapped, and must not be
            written.
        streams: the position of each rank's random streams, on host and device (ours).
        model_checksum: ``checksum`` of the file with the weights (ours).
        seed: seed of the data's order (ours).
        batches_read: training batches, of the net's batch size, read by all ranks together (ours).
        loss_scale, clean_iterations: fp16's loss scale, and iterations since its last overflow (ours).
        minimum_loss, iter_last_event: of the policy ``plateau``: the lowest loss, and the iteration of the last such
            loss or step (SSD's fork).
        losses: the last losses, whose mean ``plateau`` uses (ours).
    """

    iteration: int
    learned_net: str = ""
    current_step: int = 0
    history: list[np.ndarray] = field(default_factory=list)
    streams: list[bytes] = field(default_factory=list)
    model_checksum: int | None = None
    seed: int | None = None
    batches_read: int | None = None
    loss_scale: int | None = None
    clean_iterations: int | None = None
    minimum_loss: float | None = None
    iter_last_event: int | None = None
    losses: list[float] = field(default_factory=list)


def write_state(path: str | Path, state: SolverState, history: Iterable[np.ndarray] | None = None) -> None:
    """Write a state as Caffe 1.0 does; HDF5 where the name ends in ``.h5``.

    Args:
        path: the file.
        state: what to write.
        history: in place of the state's, an iterator that makes each array when it is written.

    Raises:
        UserError: the file cannot be written.
    """
    history = state.history if history is None else history
    if str(path).endswith(".h5"):
        hdf5.write_state(path, state, history)
        return
    message = caffe_pb2.SolverState(iter=state.iteration, learned_net=text_of_path(state.learned_net),
                                    current_step=state.current_step, streams=state.streams, losses=state.losses,
                                    **{name: getattr(state, name) for name in hdf5.NUMBERS})
    head, tail = fields_around(message, HISTORY)
    crc = 0
    with replacing(path, UserError) as file:
        for piece in (head, *_history_parts(history), tail):
            crc = zlib.crc32(piece, crc)
            file.write(piece)
        file.write(CHECKSUM_TAG + crc.to_bytes(4, "little"))


def _history_parts(history: Iterable[np.ndarray]) -> Iterator[Any]:
    for array in history:
        n_bytes, pieces = blob_parts(array)
        yield delimited(HISTORY_TAG, n_bytes)
        yield from pieces


def read_state(path: str | Path) -> SolverState:
    """A state from either kind of file. Raises UserError: no such file, damaged, or not a solver state."""
    if str(path).endswith(".h5"):
        return SolverState(**hdf5.read_state(path))
    message, blobs = read_with_blobs(path, caffe_pb2.SolverState)
    try:
        history = [blob_array(blobs[blob.num], copies=False) for blob in message.history]
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    if not message.HasField("iter"):
        raise UserError(f"{path}: holds no iteration; a .solverstate was expected")
    if message.HasField("checksum") and message.checksum != zlib.crc32(
            map_input(path, UserError)[:-len(CHECKSUM_TAG) - 4]):
        raise UserError(f"{path}: damaged: its checksum does not fit its contents")
    ours = {name: getattr(message, name) for name in hdf5.NUMBERS if message.HasField(name)}
    return SolverState(message.iter, path_of(message.learned_net), message.current_step, history,
                       list(message.streams), losses=list(message.losses), **ours)
