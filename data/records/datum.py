"""Writes Caffe's Datum message, the record type of its databases (field numbers: caffe.proto of Caffe 1.0).

Encoded without the protobuf library.
"""

from __future__ import annotations

import numpy as np

VARINT, BYTES, FLOAT = 0, 2, 5  # protobuf's wire types
CHANNELS, HEIGHT, WIDTH, DATA, LABEL, FLOAT_DATA, ENCODED = range(1, 8)


def encode_image(image: np.ndarray, label: int) -> bytes:
    """Encode an image as a Datum of raw pixels.

    Args:
        image: uint8 (channels, height, width).
        label: any int32.

    Returns:
        The encoded message.
    """
    head = b"".join(_field(number, n) for number, n in zip((CHANNELS, HEIGHT, WIDTH), image.shape, strict=True))
    return head + _bytes_field(DATA, image.tobytes()) + _field(LABEL, label)


def encode_file(content: bytes, label: int) -> bytes:
    """Encode a whole image file (JPEG, PNG) as a Datum; the reader decodes the image."""
    return _bytes_field(DATA, content) + _field(LABEL, label) + _field(ENCODED, 1)


def encode_floats(array: np.ndarray, label: int) -> bytes:
    """Encode floats (channels, height, width) as a Datum; each gets its own tag (not packed), as Caffe writes them."""
    head = b"".join(_field(number, n) for number, n in zip((CHANNELS, HEIGHT, WIDTH), array.shape, strict=True))
    tagged = np.empty((array.size, 5), np.uint8)
    tagged[:, 0] = FLOAT_DATA << 3 | FLOAT
    tagged[:, 1:] = np.ascontiguousarray(array, "<f4").reshape(-1, 1).view(np.uint8)
    return head + _field(LABEL, label) + tagged.tobytes()


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # protobuf sign-extends a negative int32 to 64 bits
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)


def _bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content
