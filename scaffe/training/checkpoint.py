"""Save and restore a run in Caffe's two files, ``_iter_N.caffemodel`` and ``_iter_N.solverstate``."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.files import SolverState, checksum, read_state, write_state
from scaffe.input_files import there
from scaffe.log import info
from scaffe.nets.flat_params import Param
from scaffe.nets.weights import load_weights, save_weights, stored_layers
from scaffe.proto.byte_text import path_of
from scaffe.training.solver import Solver

ROOT = 0


def checkpoint_paths(solver: Solver) -> tuple[Path, Path]:
    """The paths of the model and the state after the iterations done so far; ``.h5`` is added for HDF5."""
    param = solver.param
    ending = ".h5" if param.snapshot_format == param.HDF5 else ""
    stem = f"{path_of(param.snapshot_prefix)}_iter_{solver.iteration}"
    return Path(f"{stem}.caffemodel{ending}"), Path(f"{stem}.solverstate{ending}")


def save_checkpoint(solver: Solver) -> None:
    """Write both files on rank 0. Called by all ranks.

    The model is written first, so that a state never exists without its model. Raises UserError if a file cannot be
    written, an older file of the same name being left as it was; no memory is left."""
    try:
        _save(solver)
    except MemoryError as error:
        what = " ".join(f"of iteration {solver.iteration} {error}".split())
        raise UserError(f"rank {solver.communicator.rank} has not enough memory for the snapshot {what}") from error


def _save(solver: Solver) -> None:
    solver.check_losses()
    whole_parameters(solver)
    histories = solver.strategy.state.histories()
    streams = solver.communicator.gather_objects(solver.net.context.draws.to_bytes(), ROOT)
    kept: dict[str, Any] = solver.rates.kept(solver.iteration) | _place_in_data(solver)
    for observer in solver.observers:
        kept |= observer.kept(solver)
    whole = whole_histories(solver, histories)
    if solver.communicator.rank != ROOT:
        if solver.replica == 0 and solver.net.parts is not None:  # the root writes what it is given, one by one
            deque(stored_layers(solver.net, solver.param.snapshot_diff), 0)
            deque(whole, 0)
        return
    model, state = checkpoint_paths(solver)
    kind = "HDF5" if model.suffix == ".h5" else "binary proto"
    info(f"Snapshotting to {kind} file {model}")
    save_weights(solver.net, model, solver.param.snapshot_diff)
    info(f"Snapshotting solver state to {kind} file {state}")
    write_state(state, SolverState(iteration=solver.iteration, learned_net=str(model),
                                   streams=streams or [],
                                   model_checksum=checksum(model), **kept), whole)


def whole_parameters(solver: Solver) -> np.ndarray:
    """The parameters as a snapshot saves them, all of the same iteration: (n_elems,), the net's own buffer or a copy,
    whole on rank 0 at least. Called by all ranks."""
    solver.strategy.synchronize_parameters()
    solver.strategy.replica.communicator.wait_for_device()  # no file has what a lost rank has left half written
    return solver.strategy.state.parameters()


def restore_checkpoint(solver: Solver, path: str | Path) -> None:
    """Resume from a ``.solverstate``: iteration, histories, parameters, random streams and the position in the data.

    The number of ranks, and how they share nets, may differ from the run which saved it; random streams are restored
    where they go on (``_stream_of``). States that Caffe itself wrote can be read too. Raises UserError if a file cannot
    be read, is damaged, or does not fit the net.

    Args:
        path: the state's file. The ending ``.h5`` may be left out, as the script of Caffe's CIFAR-10 example does.
    """
    path = _found(path)
    state = read_state(path)
    info(f"Restoring previous solver status from {path}")
    solver.iteration = state.iteration
    if state.learned_net:
        model, beside = Path(state.learned_net), Path(path).parent / Path(state.learned_net).name
        model = beside if not there(model) and there(beside) else model
        if state.model_checksum is not None and checksum(model) != state.model_checksum:
            raise UserError(f"{model}: damaged, or not the file that {path} was saved with: its checksum differs")
        load_weights(solver.net, model)
    load_histories(solver, state.history, path)
    stream = _stream_of(solver, state.streams)
    try:
        if stream is not None and not solver.net.context.draws.from_bytes(stream):
            info("Dropout and stochastic pooling go on with other draws: CPUs and GPUs have different generators")
    except ValueError as error:
        raise UserError(f"{path}: damaged random state: {error}") from error
    solver.rates.restore(state)
    for observer in solver.observers:
        observer.restore(state)
    read_on(solver, state.batches_read)


def _stream_of(solver: Solver, streams: Sequence[bytes]) -> bytes | None:
    """The saved random stream that a rank continues; None: it keeps its own.

    One rank, and ranks that share nets, draw the same numbers from the same stream, so that they go on with one
    another's. Other ranks have streams of their own, saved for as many.
    """
    is_common = solver.net.parts is not None or solver.communicator.n_ranks == 1
    if is_common and len(set(streams)) == 1:
        return streams[0]
    return streams[solver.communicator.rank] if len(streams) == solver.communicator.n_ranks else None


def read_on(solver: Solver, batches_read: int | None) -> None:
    """Let the nets' feeds begin where the solver's iteration does. ``batches_read``: TRAIN batches that have been read;
    None if unknown."""
    for share in solver.shares:
        share.start_at(solver.iteration, batches_read, solver.param.iter_size)
        share.first_test = tests_done(solver.param, solver.iteration)


def _place_in_data(solver: Solver) -> dict[str, int]:
    if not solver.shares:
        return {}
    read = solver.shares[0].batches_read(solver.iteration, solver.param.iter_size)
    return {"seed": solver.param.random_seed & 0xFFFFFFFF, "batches_read": read}


def saved_seed(path: str | Path) -> int:
    """The seed that ordered the data of a saved run; -1 if the state has none (Caffe's own, older ones).
    Raises UserError if the file cannot be read."""
    seed = read_state(_found(path)).seed
    return -1 if seed is None else seed


def _found(path: str | Path) -> str | Path:
    return f"{path}.h5" if not there(path) and there(f"{path}.h5") else path


def newest_state(prefix: str) -> Path | None:
    """The state with the highest iteration for a solver's snapshot prefix (``-resume auto``); None: there is none."""
    folder, stem = Path(path_of(prefix)).parent, Path(path_of(prefix)).name
    found = []
    for path in folder.glob(f"{stem}_iter_*.solverstate*"):
        match = re.fullmatch(re.escape(stem) + r"_iter_(\d+)\.solverstate(\.h5)?", path.name)
        if match:
            found.append((int(match[1]), path))
    return max(found)[1] if found else None


def tests_done(param: Any, iteration: int) -> int:
    """How many tests there have been before the one that may come at an iteration, by the SolverParameter message."""
    if not param.test_interval:
        return 0
    first = 0 if param.test_initialization else 1
    return int(max(-(-iteration // param.test_interval) - first, 0))


def whole_histories(solver: Solver, histories: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Flat histories in Caffe's order: one array per parameter, all of the first history, then of the next. All ranks
    of the root's replica go through them, each with the histories of its part, and make one whole after the other."""
    params, parts = solver.net.params, solver.net.parts
    for history in histories:
        for param, place in zip(params.params, params.slices, strict=True):
            array = history[place].reshape(param.blob.shape)
            yield array if parts is None else parts.whole(*_name_of(solver, param), array)


def _name_of(solver: Solver, param: Param) -> tuple[str, int]:
    node = solver.net.nodes[param.layer_index]
    return node.name, next(i for i, blob in enumerate(node.layer.blobs) if blob is param.blob)


def load_histories(solver: Solver, arrays: list[np.ndarray], path: str | Path) -> None:
    """Check the saved histories and copy the parts that this rank owns.
    Raises UserError if they are not those of this solver and net."""
    params, n_histories = solver.net.params, solver.updater.rule.n_histories
    wanted = n_histories * len(params.params)
    if len(arrays) != wanted:
        raise UserError(f"{path}: holds {len(arrays)} history blobs, this solver and net need {wanted}")
    places = [(i, p, s) for i in range(n_histories) for p, s in zip(params.params, params.slices, strict=True)]
    portions = [None if solver.net.parts is None else solver.net.parts.portion(*_name_of(solver, param))
                for _, param, _ in places]
    for array, portion, (_, param, _) in zip(arrays, portions, places, strict=True):
        shape = param.blob.shape if portion is None else portion.shape
        if array.size != prod(shape):
            raise UserError(f"{path}: a history blob has shape {array.shape}, the net's parameter {shape}")
    for array, portion, (index, _, place) in zip(arrays, portions, places, strict=True):
        own = array if portion is None else portion.of(array)
        solver.strategy.state.load_history(index, place.start, own.reshape(-1))
