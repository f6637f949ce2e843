"""Caffe's Datum message, the record type of its databases: written, and read as runs of samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scaffe.data.records.decode import Colour, decode, image_runs
from scaffe.data.sources.source import Run, Shape
from scaffe.errors import DataError

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


def datum_runs(content: np.ndarray, spans: np.ndarray, names: Sequence[str], colour: Colour) -> Iterator[Run]:
    """Read the samples of Datum records.

    Args:
        content: uint8, 1-D, read-only; all records lie in it.
        spans: int64 (n, 2), start and length of each record in bytes.
        names: what error messages call each record.
        colour: how records that hold image files are decoded.

    Yields:
        One run for all records, without a copy, if all are raw pixels of one shape; runs of neighbouring image files
        of one shape, each valid until the next; otherwise one run a record.

    Raises:
        DataError: a record is not a complete Datum; the message names it.
    """
    from scaffe.data.kernels import datum_fields as f

    table, is_file = _fields(content, spans)
    kinds = table[:, [f.CHANNELS, f.HEIGHT, f.WIDTH, f.N_FLOATS, f.ENCODED, f.N_DATA]]
    alike = len(spans) > 0 and not table[:, f.STATUS].any() and not (kinds != kinds[0]).any()
    if alike and table[0, f.N_DATA] and not table[0, f.ENCODED]:
        yield _raw(content, table, names[0])
        return
    i = 0
    while i < len(spans):
        n_files = int(np.argmin(np.append(is_file[i:], False)))
        if n_files:
            yield from _images(content, table[i:i + n_files], names, i, colour)
        else:
            yield _one(content, table[i:i + 1], spans[i], names[i])
        i += max(n_files, 1)


def datum_files(content: np.ndarray, spans: np.ndarray, colour: Colour) -> tuple[list[np.ndarray | None], np.ndarray]:
    """The image files in Datum records, as ``FileSource.files`` gives them; arguments as for ``datum_runs``."""
    from scaffe.data.kernels import datum_fields as f

    table, is_file = _fields(content, spans)
    chosen = is_file & (colour != Colour.GREY)
    return [content[slice(*place)] if found else None
            for found, place in zip(chosen.tolist(), _places(table), strict=True)], table[:, f.LABEL]


def _fields(content: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The table of ``find_fields``, and which records are image files."""
    from scaffe.data.kernels import datum_fields as f

    table = np.empty((len(spans), f.N_COLUMNS), np.int64)
    f.find_fields(content, spans, table)
    return table, (table[:, f.STATUS] == 0) & (table[:, f.ENCODED] != 0)


def _places(table: np.ndarray) -> list[list[int]]:
    """Where the bytes of each record's data start and end."""
    from scaffe.data.kernels import datum_fields as f

    places: list[list[int]] = np.stack([table[:, f.DATA], table[:, f.DATA] + table[:, f.N_DATA]], 1).tolist()
    return places


def _raw(content: np.ndarray, table: np.ndarray, name: str) -> Run:
    """A run of raw pixels, not copied."""
    from scaffe.data.kernels import datum_fields as f

    shape = _shape(table[0], int(table[0, f.N_DATA]), name)
    return Run(content, table[:, f.DATA].copy(), table[:, f.LABEL], shape)


def _images(content: np.ndarray, table: np.ndarray, names: Sequence[str], first: int, colour: Colour) -> Iterator[Run]:
    """Records that are image files; ``first``: the number of the first one."""
    from scaffe.data.kernels import datum_fields as f

    places = _places(table)

    def make(i: int, out: np.ndarray) -> np.ndarray:
        image = decode(content[slice(*places[i])], colour, out)
        if image is None:
            raise DataError(f"{names[first + i]} does not hold an image of 8 bits that OpenCV reads")
        return image

    return image_runs(make, table[:, f.LABEL])


def _one(content: np.ndarray, table: np.ndarray, span: np.ndarray, name: str) -> Run:
    """One record as a run: raw pixels, or floats."""
    from scaffe.data.kernels import datum_fields as f

    row = table[0]
    if row[f.STATUS]:
        raise DataError(f"{name} is not a Datum")
    if row[f.N_DATA]:
        return _raw(content, table, name)
    shape = _shape(row, int(row[f.N_FLOATS]), name)
    floats = np.empty(int(row[f.N_FLOATS]), np.float32)
    if f.read_floats(content, span[0], span[1], floats.view(np.uint8)):
        raise DataError(f"{name} is not a Datum")
    floats.flags.writeable = False
    return Run(floats, np.zeros(1, np.int64), table[:, f.LABEL], shape)


def _shape(row: np.ndarray, n_found: int, name: str) -> Shape:
    """The shape that a Datum states. Raises DataError if it does not make ``n_found`` values."""
    channels, height, width = (int(n) for n in row[1:4])
    if min(channels, height, width) < 1:
        raise DataError(f"{name} has the shape {channels} x {height} x {width}")
    if n_found != channels * height * width:
        raise DataError(f"{name}: {channels} x {height} x {width} values expected, found {n_found}")
    return channels, height, width
