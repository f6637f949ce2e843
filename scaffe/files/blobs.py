"""Arrays to BlobProto messages and back, packed by hand: protobuf's own functions take 60 times longer for CaffeNet."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.atomic_files import replacing
from scaffe.errors import UserError
from scaffe.files.wire import WireError, lift_blobs, read_fields, read_numbers
from scaffe.input_files import map_input, read_input
from scaffe.proto import caffe_pb2
from scaffe.proto.raw_strings import delimited, varint, wire_form
from scaffe.proto.text import ProtoError, parse_binary

DATA, SHAPE, DOUBLE_DATA = 5, 7, 8  # fields of BlobProto
ITEM_BYTES = {DATA: 4, DOUBLE_DATA: 8}
DATA_TAG, DIFF_TAG, SHAPE_TAG = b"\x2a", b"\x32", b"\x3a"  # 5, 6 and 7, length-delimited
OLD_SHAPE = (1, 2, 3, 4)  # num, channels, height, width
C3D_SHAPE, C3D_DATA = (1, 2, 3, 4, 5), 6  # num, channels, length, height, width (facebookarchive/C3D, v1.0)


def blob_parts(array: np.ndarray, diff: np.ndarray | None = None) -> tuple[int, list[Any]]:
    """The wire form of a BlobProto.

    Args:
        array: the values, float32. An array without axes gets no shape message, as in Caffe.
        diff: the diff, float32 of the same shape, if it is to be stored.

    Returns:
        (length in bytes, the pieces to write one after another).
    """
    pieces: list[Any] = []
    for tag, numbers in ((DATA_TAG, array), (DIFF_TAG, diff)):
        if numbers is not None and numbers.size:
            values = np.ascontiguousarray(numbers, "<f4").reshape(-1)
            pieces += [delimited(tag, values.nbytes), values.view(np.uint8).data]
    if array.ndim:
        dims = b"".join(varint(n) for n in array.shape)
        shape = delimited(b"\x0a", len(dims)) + dims
        pieces.append(delimited(SHAPE_TAG, len(shape)) + shape)
    return sum(len(p) for p in pieces), pieces


def blob_array(buffer: memoryview, copies: bool = True) -> np.ndarray:
    """A serialized BlobProto as a float32 array; old four-number shapes, C3D's five and double values are read too.

    Args:
        buffer: the message's bytes.
        copies: whether to return a copy; else the array may be a view of the bytes, which must not be written.

    Raises:
        ValueError: the bytes are truncated, or the shape does not fit the number of values.
    """
    fields = [(number, value) for number, value, _ in read_fields(buffer)]
    if any(number == DATA and isinstance(value, int) for number, value in fields):
        return _c3d_array(fields)
    pieces: dict[int, list[memoryview]] = {DATA: [], DOUBLE_DATA: []}
    old: dict[int, int] = {}
    shape: tuple[int, ...] = ()
    for number, value in fields:
        if number in pieces and isinstance(value, memoryview):
            pieces[number] += [_of_items(value, ITEM_BYTES[number])]
        elif number == SHAPE and isinstance(value, memoryview):
            shape = _dims(value)
        elif number in OLD_SHAPE and isinstance(value, int):
            old[number] = value
    if old:
        shape = tuple(old.get(number, 0) for number in OLD_SHAPE)
    used = DOUBLE_DATA if pieces[DOUBLE_DATA] else DATA
    content = pieces[used][0] if len(pieces[used]) == 1 else b"".join(pieces[used])
    return _shaped(np.frombuffer(content, f"<f{ITEM_BYTES[used]}").astype(np.float32, copy=copies), shape)


def _c3d_array(fields: list[tuple[int, int | memoryview]]) -> np.ndarray:
    """The array of a blob of C3D's first version, whose BlobProto has other field numbers."""
    dims = {number: value for number, value in fields if isinstance(value, int)}
    content = b"".join(value for number, value in fields if number == C3D_DATA and isinstance(value, memoryview))
    values = np.frombuffer(_of_items(memoryview(content), ITEM_BYTES[DATA]), "<f4")
    return _shaped(values.astype(np.float32), tuple(dims.get(n, 0) for n in C3D_SHAPE))


def _of_items(content: memoryview, n_bytes: int) -> memoryview:
    if len(content) % n_bytes:
        raise ValueError(f"a blob's values break off: {len(content)} bytes of {n_bytes} each")
    return content


def _shaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if prod(shape) != array.size:
        raise ValueError(f"a blob of shape {str(shape)[:200]} holds {array.size} values")
    return array.reshape(shape)


def _dims(shape: memoryview) -> tuple[int, ...]:
    dims: list[int] = []
    for _, value, _ in read_fields(shape):
        dims += [value] if isinstance(value, int) else read_numbers(value)
    return tuple(dims)


def read_with_blobs(path: str | Path, kind: Any) -> tuple[Any, list[memoryview]]:
    """A message from a binary file, without its blobs' data (``num`` of each blob is its index in the list of blobs).

    Raises:
        UserError: no such file, cut short, or of another kind.
    """
    blobs: list[memoryview] = []
    raw = map_input(path, UserError)
    try:
        return parse_binary(lift_blobs(raw, kind.DESCRIPTOR, blobs), kind, str(path)), blobs
    except ProtoError as error:
        raise UserError(str(error)) from error
    except WireError as error:
        raise UserError(f"{path}: truncated, or not a binary {kind.DESCRIPTOR.name} of {len(raw)} bytes: {error}"
                        ) from error


def fields_around(message: Any, number: int) -> tuple[bytes, bytes]:
    """A message's wire form in two pieces: its fields below a number, and those above."""
    pieces: list[bytes] = []
    for is_other in (number.__le__, number.__ge__):
        part = type(message)()
        part.CopyFrom(message)
        for field, _ in message.ListFields():
            if is_other(field.number):
                part.ClearField(field.name)
        pieces.append(wire_form(part))
    return pieces[0], pieces[1]


def read_mean(path: str | Path) -> np.ndarray:
    """The array of a mean file, float32, usually (1, channels, height, width). Raises UserError."""
    raw = read_input(path, UserError)
    try:
        return blob_array(memoryview(raw))
    except ValueError as error:
        raise UserError(f"{path}: truncated, or not a mean image of {len(raw)} bytes ({error})") from error


def write_mean(path: str | Path, mean: np.ndarray) -> None:
    """Write (1, channels, height, width) in the old four-number form that Caffe's tools write. Raises UserError."""
    if mean.ndim != 4:
        raise UserError(f"{path}: a mean image has 4 axes (1, channels, height, width), not shape {mean.shape}")
    head = caffe_pb2.BlobProto(**dict(zip(("num", "channels", "height", "width"), mean.shape, strict=True)))
    with replacing(path, UserError) as file:
        file.write(head.SerializeToString())
        for piece in blob_parts(mean.reshape(-1))[1][:2]:  # the values alone, without the new shape
            file.write(piece)
