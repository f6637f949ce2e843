"""ReverseTime: turns around sequences that have their own lengths (caffe_ocr's fork, reverse_time_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.base.neuron import refuse_gradient


@layer_types.register("ReverseTime")
class ReverseTime(Layer):
    """Step t of a sequence of length L becomes step L - 1 - t; steps from L on stay, or are 0 without copy_remaining.

    (The fork leaves them as they happen to be in memory.)

    Bottoms: sequences (T, N, ...); their lengths (N,). Top: as bottom 0.
    """

    n_bottoms = (2, 2)
    exact_bottoms = (1,)
    host_only = True
    temporaries = 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape. Raises LayerError if there is not one length a sequence, or in place."""
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")
        if bottom[0].ndim < 2 or bottom[1].shape != bottom[0].shape[1:2]:
            raise LayerError(f"wants sequences (T, N, ...) and lengths (N,), got {bottom[0].shape}, {bottom[1].shape}")
        top[0].reshape(bottom[0].shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        """The lengths have no gradient."""
        return bottom_index == 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Turn the sequences around. Raises LayerError for a length out of range."""
        n_steps = bottom[0].shape[0]
        lengths = bottom[1].data.astype(np.int64)
        if lengths.size and not 0 <= lengths.min() <= lengths.max() <= n_steps:
            raise LayerError(f"lengths lie in 0 to {n_steps}, got {lengths.min()} to {lengths.max()}")
        steps = np.arange(n_steps)[:, None]
        inside = steps < lengths
        self._sources = np.where(inside, lengths - 1 - steps, steps), np.arange(bottom[0].shape[1])
        self._kept = inside | self.param.reverse_time_param.copy_remaining
        self._turn(bottom[0].data, top[0].data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Turn the gradient around."""
        refuse_gradient(propagate_down, [1])
        if propagate_down[0]:
            self._turn(top[0].diff, bottom[0].diff)

    def _turn(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write x in its new order to y: the way there is also the way back."""
        y[...] = x[self._sources] * self._kept.reshape(*self._kept.shape, *[1] * (x.ndim - 2))
