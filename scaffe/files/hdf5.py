"""Trained nets and solver states in HDF5 files (Caffe 1.0's layout)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.atomic_files import replacing
from scaffe.errors import UserError
from scaffe.hdf5_input import Hdf5Input, h5py_module, hdf5_input
from scaffe.proto.byte_text import bytes_of, shown, text_of

Layer = tuple[str, str, list[np.ndarray | None]]  # name, type, blobs


@dataclass(frozen=True)
class StoredLayer:
    """The part of a layer that is stored in a file of trained weights.

    Attributes:
        param: the LayerParameter, without blobs.
        blobs: the parameters' values in Caffe's order.
        diffs: their diffs if the file is to keep them (``snapshot_diff``); else empty.
        shared: indices of blobs that another layer owns: HDF5 files leave their values out, as Caffe's do.
    """

    param: Any
    blobs: Sequence[np.ndarray] = ()
    diffs: Sequence[np.ndarray] = ()
    shared: frozenset[int] = frozenset()


# What a state may hold.
NUMBERS = {"model_checksum": np.uint64, "seed": np.uint64, "batches_read": np.uint64, "loss_scale": np.uint64,
           "clean_iterations": np.uint64, "minimum_loss": np.float32, "iter_last_event": np.int32}
MOST_BLOBS = 1000  # of a layer


def write_model(path: str | Path, layers: Iterable[StoredLayer]) -> None:
    """Write a net's layers.

    The group "data" has a group per layer with the datasets "0", "1", ... for its blobs; the group "diff" is the same
    for the diffs, if kept. For blobs that another layer owns the diff is written but not the value (Caffe 1.0).

    Raises:
        UserError: the file cannot be written, two layers have one name, or h5py is not installed.
    """
    stored = list(layers)
    check_names(path, [layer.param.name for layer in stored if layer.blobs])
    with _writing(path) as file:
        for layer in stored:
            owned = {i: blob for i, blob in enumerate(layer.blobs) if i not in layer.shared}
            _put_arrays(_group(file, f"data/{layer.param.name}"), owned)
        if any(layer.diffs for layer in stored):
            for layer in stored:
                _put_arrays(_group(file, f"diff/{layer.param.name}"), dict(enumerate(layer.diffs)))


def check_names(path: str | Path, names: Iterable[str]) -> None:
    """Raise UserError if two of the layers with parameters have one name."""
    for name, n_layers in Counter(names).items():
        if n_layers > 1:
            raise UserError(f"{path}: {n_layers} layers with parameters are named {shown(name)!r}; an HDF5 file has "
                            "one of a name: give them others, or take snapshot_format BINARYPROTO")


def _group(file: Any, name: str) -> Any:
    """A group, created if missing; h5py's own function takes only UTF-8 names."""
    raw, h5py = bytes_of(name), h5py_module(UserError)
    if raw == name.encode():
        return file.require_group(name)
    try:
        return h5py.Group(h5py.h5g.open(file.id, raw))
    except (KeyError, ValueError):  # it, or a group around it, is not there
        options = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        options.set_create_intermediate_group(True)
        return h5py.Group(h5py.h5g.create(file.id, raw, options))


def _put_arrays(group: Any, arrays: dict[int, np.ndarray]) -> None:
    for index, array in arrays.items():
        group.create_dataset(str(index), data=np.asarray(array, np.float32))


def model_layers(path: str | Path) -> Iterator[Layer]:
    """A net's layers, one after another, so that they need not fit in memory together.

    Yields:
        (name, "", blobs float32); the type is empty because the file does not store it. A blob is None if the file
        leaves it out.

    Raises:
        UserError: the file is missing or damaged, or h5py is not installed.
    """
    with hdf5_input(path, UserError) as file:
        if "data" not in file.root:
            raise UserError(f"{path}: has no group 'data'; a .caffemodel.h5 was expected")
        yield from _layers(file, file.root["data"], "", set())


def _layers(file: Hdf5Input, group: Any, prefix: str, seen: set[Any]) -> Iterator[Layer]:
    """The layers in a group and in its subgroups, each group once, whatever links lead to it."""
    for name, inner in _items(group):
        if not hasattr(inner, "keys") or inner.id in seen:
            continue  # a blob, taken with the group that it is in, or a loop
        seen.add(inner.id)
        blobs = {key: item for key, item in _items(inner) if key.isdecimal() and not hasattr(item, "keys")}
        if blobs or not len(inner):
            yield prefix + name, "", _blobs(file, blobs, prefix + name)
        yield from _layers(file, inner, f"{prefix}{name}/", seen)


def _items(group: Any) -> Iterator[tuple[str, Any]]:
    """The items of a group; h5py gives a name that is no UTF-8 as bytes. Its own ``items`` would hold h5py's lock as
    long as an exception that ended a loop over it is kept."""
    for key in list(group):
        yield text_of(key if isinstance(key, bytes) else key.encode()), group.get(key)


def _blobs(file: Hdf5Input, named: dict[str, Any], layer: str) -> list[np.ndarray | None]:
    """A layer's blobs by number, None for a number that is left out."""
    numbers = {int(key): key for key in named}
    n_blobs = max(numbers, default=-1) + 1
    if n_blobs > MOST_BLOBS:
        raise UserError(f"{file.path}: layer {layer!r} has a blob of the number {n_blobs - 1}; "
                        f"no layer has more than {MOST_BLOBS}")
    return [file.array(named[numbers[i]], f"{layer}/{i}") if i in numbers else None for i in range(n_blobs)]


def write_state(path: str | Path, state: Any, arrays: Iterable[np.ndarray]) -> None:
    """Datasets "iter", "learned_net", "current_step" and the group "history", of these arrays. Raises UserError."""
    with _writing(path) as file:
        file.create_dataset("iter", data=np.array([state.iteration], np.int32))
        _put_string(file, "learned_net", state.learned_net)
        file.create_dataset("current_step", data=np.array([state.current_step], np.int32))
        history = file.create_group("history")
        for index, array in enumerate(arrays):
            history.create_dataset(str(index), data=np.asarray(array, np.float32))
        for name, kind in NUMBERS.items():
            if getattr(state, name) is not None:
                file.create_dataset(name, data=np.array([getattr(state, name)], kind))
        if state.losses:
            file.create_dataset("losses", data=np.array(state.losses, np.float64))
        for rank, stream in enumerate(state.streams):
            file.create_dataset(f"streams/{rank}", data=np.frombuffer(stream, np.uint8))


def read_state(path: str | Path) -> dict[str, Any]:
    """The fields of a SolverState. Raises UserError."""
    with hdf5_input(path, UserError) as file:
        root = file.root
        if "iter" not in root:
            raise UserError(f"{path}: has no dataset 'iter'; a .solverstate.h5 was expected")
        name = file.array(root["learned_net"], "learned_net", None).item() if "learned_net" in root else b""
        history, streams = root["history"], root.get("streams", {})
        return {"iteration": _number(file, "iter"), "learned_net": os.fsdecode(name.rstrip(b"\0")),
                "current_step": _number(file, "current_step"),
                "history": [file.array(history[str(i)], f"history/{i}") for i in range(len(history))],
                **{name: _number(file, name) for name in NUMBERS if name in root},
                "losses": file.array(root["losses"], "losses", np.float64).tolist() if "losses" in root else [],
                "streams": [file.array(streams[str(i)], f"streams/{i}", np.uint8).tobytes()
                            for i in range(len(streams))]}


def _number(file: Hdf5Input, name: str) -> Any:
    return np.ravel(file.array(file.root[name], name, None))[0].item()


def _put_string(file: Any, name: str, text: str) -> None:
    """Write a string as the C library does: of fixed length, with a zero at the end."""
    h5py = h5py_module(UserError)
    raw = os.fsencode(text) + b"\0"
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(raw))
    place = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR))
    place.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(raw, f"S{len(raw)}"), mtype=kind)


@contextmanager
def _writing(path: str | Path) -> Iterator[Any]:
    with replacing(path, UserError) as plain, h5py_module(UserError).File(plain, "w") as file:
        yield file
