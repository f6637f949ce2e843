"""Loads and saves a net's trained weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.files import StoredLayer, hdf5, model_layers, write_model
from scaffe.log import info
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node, Parts, by_name
from scaffe.proto.byte_text import path_of

Arrays = Sequence[np.ndarray | None]
BLANKS = " \t\n\v\f\r"  # C's


def initial_weights(given: str, param: Any) -> list[str]:
    """The weight files that a run starts from: the command line's, or else those of the solver's ``weights``.
    ``given``: the command line's paths, as ``listed`` takes them, or ""."""
    return [path for paths in ([given] if given else map(path_of, param.weights)) for path in listed(paths)]


def listed(paths: str) -> list[str]:
    """Split paths at commas. Blanks around a path are dropped, as in Caffe, unless the path is nothing else."""
    return [path for one in paths.split(",") if (path := one.strip(BLANKS))] or [paths][:len(paths)]


def load_weights(net: Net, path: str | Path) -> None:
    """Copy weights from a ``.caffemodel``, ``.caffemodel.h5`` or ``.safetensors`` into layers of the same names.

    Layers of the file that the net lacks are ignored, with a line in the log. Layers of the net that the file lacks
    keep their values. Raises UserError if the file cannot be read, or its blobs do not fit the net's."""
    _take(net, model_layers(path), path)


def load_own_weights(net: Net, path: str | Path) -> None:
    """As ``load_weights``, but only into parameters of a test net that the training net lacks."""
    own = {id(blob) for blob in net.own_blobs}
    own |= {id(blob) for blob, owner in net.sharers if id(owner) in own}
    _take(net, model_layers(path), path, own)


def load_hdf5(net: Net, path: str | Path) -> None:
    """As ``load_weights``, from an HDF5 file of any name."""
    _take(net, hdf5.model_layers(path), path)


def save_hdf5(net: Net, path: str | Path) -> None:
    """Write every layer of the net to an HDF5 file of any name."""
    hdf5.write_model(path, [_stored(node) for node in net.nodes])


def _take(net: Net, layers: Iterable[tuple[str, str, Arrays]], path: str | Path,
          only: Collection[int] | None = None) -> None:
    nodes = {node.name: [node] for node in net.nodes} | by_name(net.nodes)
    for name, _, arrays in layers:
        if name not in nodes:
            if arrays and only is None:
                info(f"Ignoring source layer {name}")
        elif arrays:
            node = nodes[name][0]
            del nodes[name][:len(nodes[name]) > 1]  # the file's next layer of this name is the net's next one
            if only is None or any(id(blob) in only for blob in node.layer.blobs):
                _copy(node, arrays, path, net.parts, only)
    net.note_written()


def _copy(node: Node, arrays: Arrays, path: str | Path, parts: Parts | None, only: Collection[int] | None) -> None:
    blobs = node.layer.blobs
    arrays = [*arrays, *[None] * (len(blobs) - len(arrays))]  # what the end of the file's list lacks
    missing = {i for i, array in enumerate(arrays) if array is None}
    if len(arrays) > len(blobs) or missing - node.shared:
        raise UserError(f"{path}: layer {node.name!r} has {len(arrays) - len(missing)} blobs in the file, "
                        f"{len(blobs)} in the net")
    for index, (blob, array) in enumerate(zip(blobs, arrays, strict=False)):
        if array is None or (only is not None and id(blob) not in only):
            continue  # its owner, or the training net, has it
        portion = parts.portion(node.name, index) if parts is not None else None
        shape = portion.shape if portion is not None else blob.shape
        if _squeezed(array.shape) != _squeezed(shape):
            raise UserError(f"{path}: layer {node.name!r} blob {index} has shape {_show(array.shape)} in the file, "
                            f"{_show(shape)} in the net; to train it anew, rename the layer")
        own = portion.of(array) if portion is not None else array.reshape(shape)
        on_host = isinstance(blob.data, np.ndarray)  # as all blobs on a CPU, and those that a memory plan has put there
        blob.data[...] = own if on_host else node.layer.context.kernels.to_device(own, blob.dtype)


def save_weights(net: Net, path: str | Path, with_diffs: bool = False) -> None:
    """Write every layer of the net, including those without parameters, as Caffe does.

    Args:
        path: ``.caffemodel``; ``.caffemodel.h5`` for HDF5, ``.safetensors`` for that.
        with_diffs: save the diffs too (``snapshot_diff``).
    """
    write_model(path, net.name, stored_layers(net, with_diffs))


def stored_layers(net: Net, with_diffs: bool = False) -> Iterator[StoredLayer]:
    """The layers of the whole net, one after the other, as ``save_weights`` writes them.

    Where ranks share the layers, all ranks of the replica go through them together; the first one gets whole layers.
    """
    for node in net.nodes:
        if net.parts is None or net.parts.original(node.param) is not None:
            yield _stored(node, with_diffs, net.parts)


def _stored(node: Node, with_diffs: bool = False, parts: Parts | None = None) -> StoredLayer:
    blobs, to_host = node.layer.blobs, node.layer.context.kernels.to_host
    data = [to_host(blob.data) for blob in blobs]
    diffs = [to_host(blob.diff) for blob in blobs] if with_diffs else []
    if parts is not None:
        data, diffs = ([parts.whole(node.name, i, part) for i, part in enumerate(found)] for found in (data, diffs))
    return StoredLayer(_as_saved(node, parts), data, diffs, frozenset(node.shared))


def _as_saved(node: Node, parts: Parts | None) -> Any:
    """The layer's message as Caffe writes it: a loss layer's has its weight even if the prototxt has none."""
    param = type(node.param)()
    param.CopyFrom(node.param if parts is None else parts.original(node.param))
    if node.layer.default_loss_weight and not param.loss_weight:
        param.loss_weight.append(node.layer.default_loss_weight)
    return param


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return tuple(shape)


def _show(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
