"""Trained nets: ``.caffemodel`` (a NetParameter with blobs)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from scaffe.atomic_files import replacing
from scaffe.errors import UserError
from scaffe.files import hdf5, safetensors
from scaffe.files.blobs import blob_array, blob_parts, fields_around, read_with_blobs
from scaffe.files.hdf5 import Layer, StoredLayer
from scaffe.files.upgrade import upgrade_net
from scaffe.proto import caffe_pb2
from scaffe.proto.raw_strings import delimited, wire_form

LAYER_TAG, BLOBS_TAG = b"\xa2\x06", b"\x3a"  # field 100 of NetParameter, field 7 of LayerParameter
LAYER, BLOBS = 100, 7
OTHERS = (".h5", safetensors.ENDING)  # endings of files that are no NetParameter


def write_model(path: str | Path, net_name: str, layers: Iterable[StoredLayer]) -> None:
    """Write a net's layers with their blobs, byte for byte as Caffe 1.0 does; where the name ends in ``.h5`` or
    ``.safetensors``, in those formats.

    Args:
        path: the file; an existing one is replaced only once the new one is complete.
        net_name: the net's name.
        layers: all layers, including those without blobs.

    Raises:
        UserError: the file cannot be written.
    """
    if str(path).endswith(".h5"):
        hdf5.write_model(path, layers)
        return
    if str(path).endswith(safetensors.ENDING):
        safetensors.write_model(path, net_name, layers)
        return
    with replacing(path, UserError) as file:
        file.write(wire_form(caffe_pb2.NetParameter(name=net_name)))
        for layer in layers:
            pairs = zip_longest(layer.blobs, layer.diffs)
            file.writelines(_layer_parts(layer.param, [blob_parts(blob, diff) for blob, diff in pairs]))


def _layer_parts(param: Any, blobs: Sequence[tuple[int, Sequence[Any]]]) -> list[Any]:
    """A layer's wire form in pieces, with these blobs (each its length and pieces) for its own."""
    head, tail = fields_around(param, BLOBS)
    pieces: list[Any] = [head]
    for n_bytes, parts in blobs:
        pieces += [delimited(BLOBS_TAG, n_bytes), *parts]
    pieces.append(tail)
    return [delimited(LAYER_TAG, sum(len(p) for p in pieces)), *pieces]


def upgrade_model(source: str | Path, target: str | Path) -> bool:
    """Write a trained net of any age in today's form, with its blobs unchanged; or as another of ``write_model``'s
    kinds.

    Returns:
        Whether there was anything to upgrade.

    Raises:
        UserError: a file cannot be read or written, or the net cannot be upgraded.
    """
    if any(str(path).endswith(OTHERS) for path in (source, target)):
        write_model(target, "", _stored(source))
        return True
    message, blobs = read_with_blobs(source, caffe_pb2.NetParameter)
    try:
        net = upgrade_net(message)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error
    with replacing(target, UserError) as file:
        file.write(fields_around(net, LAYER)[0])
        for layer in net.layer:
            parts = [blobs[blob.num] for blob in layer.blobs]
            file.writelines(_layer_parts(layer, [(len(part), [part]) for part in parts]))
    return bool(net != message)


def _stored(path: str | Path) -> Iterator[StoredLayer]:
    """The layers of a file, to be written to one of another kind."""
    for name, kind, blobs in model_layers(path):
        whole = [blob for blob in blobs if blob is not None]
        if len(whole) < len(blobs):
            raise UserError(f"{path}: layer {name!r} has blobs that another layer owns; load the file into its net, "
                            "and save that")
        yield StoredLayer(caffe_pb2.LayerParameter(name=name, type=kind), whole)


def read_model(path: str | Path) -> list[Layer]:
    """The layers of a trained net: (name, type, blobs float32), old generations upgraded.

    Blobs are mapped from the file: they are read when they are accessed, and must not be written.

    Raises:
        UserError: no such file, truncated, or not a trained net.
    """
    if str(path).endswith(OTHERS):
        return list(model_layers(path))
    message, blobs = read_with_blobs(path, caffe_pb2.NetParameter)
    try:
        layers: list[Layer] = [(layer.name, layer.type, [blob_array(blobs[b.num], copies=False) for b in layer.blobs])
                               for layer in upgrade_net(message).layer]
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    if not layers:
        raise UserError(f"{path}: holds no layers; a .caffemodel was expected")
    return layers


def model_layers(path: str | Path) -> Iterable[Layer]:
    """As ``read_model``; those of HDF5 and safetensors one after another, so that they need not be in memory
    together."""
    if str(path).endswith(safetensors.ENDING):
        return safetensors.model_layers(path)
    return hdf5.model_layers(path) if str(path).endswith(".h5") else read_model(path)
