"""Reads protobuf's wire format by hand, for messages that contain arrays.

With protobuf before 7, ``numpy.array(blob.data)`` takes most of a minute for CaffeNet. So blobs are taken out of the
bytes before protobuf parses them, and each is replaced by a small BlobProto that holds its index in a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scaffe.proto.raw_strings import delimited, varint

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
N_BYTES = {FIXED64: 8, FIXED32: 4}
MOST_BLOBS = 100_000  # of a file; the largest nets have some thousand
HOLDERS = {"NetParameter", "LayerParameter", "V1LayerParameter", "V0LayerParameter", "SolverState"}


class WireError(ValueError):
    """Raised for bytes that are no message: truncated, or of another kind."""


def read_fields(buffer: memoryview) -> Iterator[tuple[int, int | memoryview, memoryview]]:
    """The fields of a message.

    Yields:
        (field number, value, bytes of the whole field). The value is an int for varints, else the value's bytes.

    Raises:
        WireError: the bytes end inside a field, or a field is of an unknown kind.
    """
    at = 0
    while at < len(buffer):
        start = at
        key, at = _read_varint(buffer, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _read_varint(buffer, at)
            yield key >> 3, value, buffer[start:at]
            continue
        if kind == DELIMITED:
            n_bytes, at = _read_varint(buffer, at)
        elif kind in N_BYTES:
            n_bytes = N_BYTES[kind]
        else:
            raise WireError(f"no field starts at byte {start}")
        if at + n_bytes > len(buffer):
            raise WireError(f"ends {at + n_bytes - len(buffer)} bytes too early")
        at += n_bytes
        yield key >> 3, buffer[at - n_bytes:at], buffer[start:at]


def read_numbers(buffer: memoryview) -> list[int]:
    """All varints of a packed field. Raises WireError."""
    numbers, at = [], 0
    while at < len(buffer):
        number, at = _read_varint(buffer, at)
        numbers.append(number)
    return numbers


def _read_varint(buffer: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(buffer):
            raise WireError("ends inside a number")
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise WireError("a number is too long")


def lift_blobs(buffer: memoryview, descriptor: Any, blobs: list[memoryview]) -> bytes:
    """Take the blobs out of a message of the descriptor's type; ``blobs`` receives the bytes of each.

    Returns:
        The message's bytes, in which each blob is a small BlobProto whose ``num`` is its index in ``blobs``.

    Raises:
        WireError: as ``read_fields``.
    """
    out = bytearray()
    for number, value, raw in read_fields(buffer):
        field = descriptor.fields_by_number.get(number)
        inner = field.message_type.name if field is not None and field.message_type is not None else ""
        if not isinstance(value, memoryview) or (inner != "BlobProto" and inner not in HOLDERS):
            out += raw
            continue
        if inner == "BlobProto":
            part = b"\x08" + varint(len(blobs))
            blobs.append(value)
            if len(blobs) > MOST_BLOBS:
                raise WireError(f"more than {MOST_BLOBS} blobs")
        else:
            part = lift_blobs(value, field.message_type, blobs)
        out += delimited(varint(number << 3 | DELIMITED), len(part)) + part
    return bytes(out)
