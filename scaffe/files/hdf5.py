"""The HDF5 forms of weights and states, in Caffe 1.0's layout. Needs h5py, imported when first used.

A layer whose name has slashes (GoogLeNet's) lies in groups inside groups; Caffe itself cannot write such nets.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.atomic_files import replacing
from scaffe.errors import UserError
from scaffe.files.stored import StoredLayer

OURS = ("model_checksum", "seed", "batches_read", "loss_scale", "clean_iterations")  # numbers that a state may hold
UNREADABLE = (OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError, MemoryError)


def write_model(path: str | Path, layers: Iterable[StoredLayer]) -> None:
    """Group "data", in it a group a layer, in it the blobs "0", "1", ...; group "diff" where diffs are kept.

    Values of blobs that another layer owns are left out, their diffs are not (Caffe 1.0). Raises UserError.
    """
    stored = list(layers)
    with _writing(path) as file:
        for layer in stored:
            owned = {i: blob for i, blob in enumerate(layer.blobs) if i not in layer.shared}
            _put_arrays(file.require_group(f"data/{layer.param.name}"), owned)
        if any(layer.diffs for layer in stored):
            for layer in stored:
                _put_arrays(file.require_group(f"diff/{layer.param.name}"), dict(enumerate(layer.diffs)))


def _put_arrays(group: Any, arrays: dict[int, np.ndarray]) -> None:
    for index, array in arrays.items():
        group.create_dataset(str(index), data=np.asarray(array, np.float32))


def read_model(path: str | Path) -> list[tuple[str, str, list[np.ndarray | None]]]:
    """(name, "", blobs) of each layer, None for a blob left out; the file keeps no types. Raises UserError."""
    with _reading(path) as file:
        if "data" not in file:
            raise UserError(f"{path}: has no group 'data'; a .caffemodel.h5 was expected")
        return list(_layers(file["data"], ""))


def _layers(group: Any, prefix: str) -> Iterator[tuple[str, str, list[np.ndarray | None]]]:
    for name, inner in group.items():
        if not hasattr(inner, "keys"):
            continue  # a blob, taken with the group that it is in
        found = {int(key): np.array(item, np.float32) for key, item in inner.items()
                 if key.isdecimal() and not hasattr(item, "keys")}
        if found or not len(inner):
            yield prefix + name, "", [found.get(i) for i in range(max(found, default=-1) + 1)]
        yield from _layers(inner, f"{prefix}{name}/")


def write_state(path: str | Path, state: Any) -> None:
    """Datasets "iter", "learned_net", "current_step" and the group "history". Raises UserError."""
    with _writing(path) as file:
        file.create_dataset("iter", data=np.array([state.iteration], np.int32))
        _put_string(file, "learned_net", state.learned_net)
        file.create_dataset("current_step", data=np.array([state.current_step], np.int32))
        history = file.create_group("history")
        for index, array in enumerate(state.history):
            history.create_dataset(str(index), data=np.asarray(array, np.float32))
        for name in OURS:
            if getattr(state, name) is not None:
                file.create_dataset(name, data=np.array([getattr(state, name)], np.uint64))
        for rank, stream in enumerate(state.streams):
            file.create_dataset(f"streams/{rank}", data=np.frombuffer(stream, np.uint8))


def read_state(path: str | Path) -> dict[str, Any]:
    """The fields of a SolverState. Raises UserError."""
    with _reading(path) as file:
        if "iter" not in file:
            raise UserError(f"{path}: has no dataset 'iter'; a .solverstate.h5 was expected")
        name = np.asarray(file["learned_net"][()]).item() if "learned_net" in file else b""
        history, streams = file["history"], file.get("streams", {})
        return {"iteration": int(np.ravel(file["iter"])[0]), "learned_net": name.rstrip(b"\0").decode(),
                "current_step": int(np.ravel(file["current_step"])[0]),
                "history": [np.array(history[str(i)], np.float32) for i in range(len(history))],
                **{name: int(np.ravel(file[name])[0]) for name in OURS if name in file},
                "streams": [np.array(streams[str(i)]).tobytes() for i in range(len(streams))]}


def _put_string(file: Any, name: str, text: str) -> None:
    """A string as the C library writes one: of fixed length, with the zero behind it."""
    h5py = _h5py()
    raw = text.encode() + b"\0"
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(raw))
    place = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR))
    place.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(raw, f"S{len(raw)}"), mtype=kind)


@contextmanager
def _writing(path: str | Path) -> Iterator[Any]:
    with replacing(path, UserError) as plain, _h5py().File(plain, "w") as file:
        yield file


@contextmanager
def _reading(path: str | Path) -> Iterator[Any]:
    if not Path(path).exists():
        raise UserError(f"{path}: {os.strerror(2).lower()}")
    try:
        with _h5py().File(path, "r") as file:
            yield file
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"{path}: truncated or damaged, or not such an HDF5 file") from error


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise UserError("HDF5 files need the package h5py: pip install h5py") from error
    return h5py
