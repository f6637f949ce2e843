"""Arrays of any length cut into a net's batches, and its outputs put together again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from scaffe.errors import UserError

Arrays = dict[str, np.ndarray]


def batches(arrays: Mapping[str, np.ndarray], batch_size: int) -> Iterator[Arrays]:
    """Cut arrays into batches along their first axis; the last batch is padded with zeros.

    Args:
        arrays: by name, all of the same length.
        batch_size: length of each batch.

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


class Gathered:
    """Collects batches, and joins them into one array per name."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {}

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Keep copies of one batch's arrays."""
        for name, array in batch.items():
            self._parts.setdefault(name, []).append(np.array(np.atleast_1d(array), order="C"))

    def joined(self, n_given: int, batch_size: int) -> Arrays:
        """Join the batches.

        Args:
            n_given: rows of the original arrays.
            batch_size: rows of a batch.

        Returns:
            One array per name, without the rows that padded the last batch.
        """
        joined = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        n_padded = -(-n_given // batch_size) * batch_size
        return {name: array[:n_given] if len(array) == n_padded else array for name, array in joined.items()}
