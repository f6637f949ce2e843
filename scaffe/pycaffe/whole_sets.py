"""A net over arrays of any length, batch by batch (pycaffe's forward_all and forward_backward_all)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from scaffe.errors import UserError
from scaffe.pycaffe.batches import Arrays, Gathered, batches


class Net(Protocol):
    """A net that runs one batch at a time (pycaffe's)."""

    inputs: list[str]
    outputs: list[str]

    @property
    def blobs(self) -> Mapping[str, Any]:
        """Name to blob; the first one's first axis is the batch."""

    def forward(self, blobs: Iterable[str] | None, start: str | None, end: str | None, **inputs: np.ndarray) -> Arrays:
        """Run the layers from start to end. Returns the outputs and ``blobs``, by name."""

    def backward(self, diffs: Iterable[str] | None, start: str | None, end: str | None, **tops: np.ndarray) -> Arrays:
        """Run the layers from start down to end. Returns the inputs' diffs and ``diffs``, by name."""


def forward_all(net: Net, blobs: Iterable[str], inputs: Mapping[str, np.ndarray]) -> Arrays:
    """The outputs and ``blobs`` for inputs of any length, one array a name. Raises UserError."""
    n_elems, outputs = _length(inputs), Gathered()
    for batch in batches(inputs, batch_size(net)):
        outputs.add(net.forward(blobs, None, None, **batch))
    if not n_elems:
        return {name: np.zeros(0, np.float32) for name in {*net.outputs, *blobs}}
    return outputs.joined(n_elems, batch_size(net))


def forward_backward_all(net: Net, blobs: Iterable[str], diffs: Iterable[str],
                         arrays: Mapping[str, np.ndarray]) -> tuple[Arrays, Arrays]:
    """The outputs and ``blobs``, and the inputs' diffs and ``diffs``, for arrays of any length. Raises UserError."""
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
