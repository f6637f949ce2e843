"""Cuts arrays of any length into batches and joins what a net makes of them (pycaffe's forward_all and the like)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from scaffe.errors import UserError

Arrays = dict[str, np.ndarray]


def batches(arrays: Mapping[str, np.ndarray], batch_size: int) -> Iterator[Arrays]:
    """Cut arrays of one length, by name, into batches along their first axis; the last one is padded with zeros.

    Raises:
        UserError: the arrays differ in length.
    """
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"all arrays must have one length, got {lengths}")
    for start in range(0, next(iter(lengths.values()), 0), batch_size):
        yield {name: _filled(np.asarray(array[start:start + batch_size]), batch_size)
               for name, array in arrays.items()}


def _filled(array: np.ndarray, batch_size: int) -> np.ndarray:
    missing = batch_size - len(array)
    return array if not missing else np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])


def copied(batch: Mapping[str, np.ndarray]) -> Arrays:
    """Copies of one batch's arrays, which the net's next pass overwrites."""
    return {name: np.array(np.atleast_1d(array), order="C") for name, array in batch.items()}


def joined(parts: Sequence[Arrays], n_rows: int, batch_size: int) -> Arrays:
    """Batches as one array per name, without the rows beyond ``n_rows`` that padded the last one."""
    whole = {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}
    n_padded = -(-n_rows // batch_size) * batch_size
    return {name: array[:n_rows] if len(array) == n_padded else array for name, array in whole.items()}


def n_rows_of(arrays: Mapping[str, np.ndarray]) -> int:
    """The length of arrays that are given by name. Raises UserError where none is given."""
    if not arrays:
        raise UserError("expected arrays for the net's inputs or outputs by name, got none")
    return len(next(iter(arrays.values())))
