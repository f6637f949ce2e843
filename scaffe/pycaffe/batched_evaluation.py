"""Runs a net over arrays of any length, batch by batch (pycaffe's forward_all and forward_backward_all)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Protocol

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


class Net(Protocol):
    """A net that runs one batch at a time (pycaffe's)."""

    inputs: list[str]
    outputs: list[str]

    @property
    def blobs(self) -> Mapping[str, Any]:
        """The blobs by name; the first axis of the first one is the batch."""

    def forward(self, blobs: Iterable[str] | None, start: str | None, end: str | None, **inputs: np.ndarray) -> Arrays:
        """Run the layers from start to end. Returns the outputs and ``blobs``, by name."""

    def backward(self, diffs: Iterable[str] | None, start: str | None, end: str | None, **tops: np.ndarray) -> Arrays:
        """Run the layers from start down to end. Returns the inputs' diffs and ``diffs``, by name."""


def forward_all(net: Net, blobs: Iterable[str], inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Run forward, batch by batch.

    Args:
        net: the net.
        blobs: names of further blobs to return.
        inputs: an array of n rows for each of the net's inputs, by name.

    Returns:
        The outputs and ``blobs`` by name, each an array of n rows.

    Raises:
        UserError: no arrays, arrays of different lengths, or names that are not the net's inputs.
    """
    n_elems, outputs = _length(inputs), Gathered()
    for batch in batches(inputs, batch_size(net)):
        outputs.add(net.forward(blobs, None, None, **batch))
    if not n_elems:
        return {name: np.zeros(0, np.float32) for name in {*net.outputs, *blobs}}
    return outputs.joined(n_elems, batch_size(net))


def forward_backward_all(net: Net, blobs: Iterable[str], diffs: Iterable[str],
                         arrays: Mapping[str, np.ndarray]) -> tuple[Arrays, Arrays]:
    """Run forward and backward, batch by batch.

    Args:
        net: the net.
        blobs: names of further blobs to return.
        diffs: names of further blobs whose diffs to return.
        arrays: n rows of data for each input and of diffs for each output, by name.

    Returns:
        (the outputs and ``blobs``, the diffs of the inputs and of ``diffs``), by name, each an array of n rows.

    Raises:
        UserError: no arrays, arrays of different lengths, or names that are not the net's inputs and outputs.
    """
    n_elems, n_batch = _length(arrays), batch_size(net)
    pairs = zip_longest(*(batches({name: arrays[name] for name in names if name in arrays}, n_batch)
                          for names in (net.inputs, net.outputs)), fillvalue={})
    outputs, gradients = Gathered(), Gathered()
    for data, tops in pairs:
        outputs.add(net.forward(blobs, None, None, **data))
        gradients.add(net.backward(diffs, None, None, **tops))
    return outputs.joined(n_elems, n_batch), gradients.joined(n_elems, n_batch)


def batch_size(net: Net) -> int:
    """The first axis of the net's first blob."""
    return int(next(iter(net.blobs.values())).shape[0])


def _length(arrays: Mapping[str, np.ndarray]) -> int:
    if not arrays:
        raise UserError("expected arrays for the net's inputs or outputs by name, got none")
    return len(next(iter(arrays.values())))
