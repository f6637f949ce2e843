"""Reads Datum records as runs of samples, for every kind of database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scaffe.data.errors import DataError
from scaffe.data.records.decode import Colour, decode, run_of
from scaffe.data.sources.source import Run, Shape


def datum_runs(content: np.ndarray, spans: np.ndarray, names: Sequence[str], colour: Colour) -> Iterator[Run]:
    """Read the samples of Datum records.

    Args:
        content: uint8, 1-D, read-only; all records lie in it.
        spans: int64 (n, 2), start and length of each record in bytes.
        names: what error messages call each record.
        colour: how records that hold image files are decoded.

    Yields:
        One run for all records, without a copy, if all are raw pixels of one shape; otherwise one run a record.

    Raises:
        DataError: a record is not a complete Datum; the message names it.
    """
    from scaffe.data.kernels import datum_fields as f

    table = np.empty((len(spans), f.N_COLUMNS), np.int64)
    f.find_fields(content, spans, table)
    kinds = table[:, [f.CHANNELS, f.HEIGHT, f.WIDTH, f.N_FLOATS, f.ENCODED, f.N_DATA]]
    alike = len(spans) > 0 and not table[:, f.STATUS].any() and not (kinds != kinds[0]).any()
    if alike and table[0, f.N_DATA] and not table[0, f.ENCODED]:
        yield _raw(content, table, names[0])
        return
    for i in range(len(spans)):
        yield _one(content, table[i:i + 1], spans[i], names[i], colour)


def _raw(content: np.ndarray, table: np.ndarray, name: str) -> Run:
    """A run of raw pixels, not copied."""
    from scaffe.data.kernels import datum_fields as f

    shape = _shape(table[0], int(table[0, f.N_DATA]), name)
    return Run(content, table[:, f.DATA].copy(), table[:, f.LABEL], shape)


def _one(content: np.ndarray, table: np.ndarray, span: np.ndarray, name: str, colour: Colour) -> Run:
    """One record as a run: an image file, raw pixels, or floats."""
    from scaffe.data.kernels import datum_fields as f

    row = table[0]
    if row[f.STATUS]:
        raise DataError(f"{name} is not a Datum")
    if row[f.ENCODED]:
        image = decode(content[row[f.DATA]:row[f.DATA] + row[f.N_DATA]], colour)
        if image is None:
            raise DataError(f"{name} does not hold an image of 8 bits that OpenCV reads")
        return run_of(image, int(row[f.LABEL]))
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
