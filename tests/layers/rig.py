"""One layer on a bench: built from prototxt text, run forward and backward as a net would."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from google.protobuf import text_format

from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TRAIN, Layer, layer_types
from scaffe.layers.base.random import Stream
from scaffe.proto import caffe_pb2

SEED = 1701
DEVICE = os.environ.get("SCAFFE_TEST_DEVICE", "cpu")


def layer_parameter(prototxt: str):
    """A LayerParameter message from its text."""
    return text_format.Parse(prototxt, caffe_pb2.LayerParameter())


def spread(shape: Sequence[int], low: float = -1.0, high: float = 1.0, seed: int = 0) -> np.ndarray:
    """Shuffled values evenly spaced in [low, high]: no two alike, none at 0, so away from kinks and ties."""
    n_elems = int(np.prod(shape, dtype=int))
    places = (np.arange(n_elems) + 0.3) / max(n_elems, 1)
    return (low + (high - low) * np.random.default_rng(seed).permutation(places)).reshape(shape)


class Rig:
    """A layer with its blobs.

    Args:
        prototxt: the layer's text; ``type`` names the layer.
        inputs: the bottoms' data in Caffe's order.
        n_tops: number of tops; None: as many as the prototxt names, else what the layer at least makes.
        in_place: top 0 is bottom 0.
        phase, dtype: for the context.
        kernels: the backend; the CPU's, or the one that SCAFFE_TEST_DEVICE names ("cuda"), unless given.
    """

    def __init__(self, prototxt: str, inputs: Sequence[np.ndarray], n_tops: int | None = None, in_place: bool = False,
                 phase: int = TRAIN, dtype: type = np.float64, kernels: ModuleType | None = None) -> None:
        self.kernels: Any = kernels or importlib.import_module(f"scaffe.layers.kernels.{DEVICE}")
        self.context = Context(phase, self.kernels, np.dtype(dtype), Stream(SEED))
        param = layer_parameter(prototxt)
        self.inputs = [np.array(x, dtype) for x in inputs]
        self.bottom = [self.context.blob(x.shape) for x in self.inputs]
        layer_type = layer_types.get(param.type).form(param, self.bottom)
        self.layer: Layer = self.kernels.maker(layer_type, param, self.bottom, np.dtype(dtype))(param, self.context)
        n_tops = n_tops if n_tops is not None else len(param.top) or self._least_tops()
        self.top = [self.bottom[0] if in_place and i == 0 else self.context.blob() for i in range(n_tops)]
        self.layer.check_counts(len(self.bottom), len(self.top))
        self.load()
        self.layer.setup(self.bottom, self.top)
        self.layer.reshape(self.bottom, self.top)

    def _least_tops(self) -> int:
        return max(self.layer.n_tops[0], len(self.inputs) if self.layer.equal_counts else 0)

    def load(self) -> None:
        """Put the inputs into the bottoms."""
        for blob, value in zip(self.bottom, self.inputs, strict=True):
            self.put(blob.data, value)

    def put(self, target: Any, values: Any) -> None:
        """Write values from the host into an array of a blob."""
        target[...] = self.kernels.to_device(np.asarray(values), target.dtype)

    def get(self, array: Any) -> np.ndarray:
        """A copy of a blob's array on the host."""
        return np.array(self.kernels.to_host(array))

    def copies(self, arrays: Iterable[Any]) -> list[np.ndarray]:
        """What the arrays hold, on the host."""
        return [self.get(array) for array in arrays]

    def forward(self) -> list[np.ndarray]:
        """Forward from the inputs and the same random draws every time. Returns copies of the tops' data."""
        self.load()
        self.context.draws.from_bytes(Stream(SEED).to_bytes())
        if self.layer.reshape_always:
            self.layer.reshape(self.bottom, self.top)
        self.layer.forward(self.bottom, self.top)
        return self.copies(blob.data for blob in self.top)

    def feed(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Forward from other inputs, of other shapes perhaps. Returns copies of the tops' data."""
        self.inputs = [np.array(x, self.context.dtype) for x in inputs]
        for blob, value in zip(self.bottom, self.inputs, strict=True):
            blob.reshape(value.shape)
        self.layer.reshape(self.bottom, self.top)
        return self.forward()

    def backward(self, top_diffs: Sequence[np.ndarray | float], propagate_down: Sequence[bool] | None = None,
                 ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Forward, then backward from these diffs into cleared parameter diffs.

        Returns copies of the bottoms' diffs and of the parameters' diffs.
        """
        self.forward()
        for blob in self.layer.blobs:
            blob.clear_diff()
        for blob, diff in zip(self.top, top_diffs, strict=True):
            self.put(blob.diff, diff)
        self.layer.backward(self.top, propagate_down or [True] * len(self.bottom), self.bottom)
        return self.copies(b.diff for b in self.bottom), self.copies(b.diff for b in self.layer.blobs)
