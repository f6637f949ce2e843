"""The base of layers that compute each element of the top from the same element of the bottom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer


class Neuron(Layer):
    """One bottom, one top of the same shape, in place if the net says so.

    A subclass gives ``activate(x, y)``, writing y, and ``differentiate(x, y, gy, gx)``, writing gx; all four are
    flat arrays in storage order. y may be x and gx may be gy. With ``keeps_input`` a layer at work in place keeps
    a copy of x for differentiate; without, differentiate must not look at x.
    """

    keeps_input = False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The top gets the bottom's shape."""
        self._kept: np.ndarray | None = None
        if bottom[0] is not top[0]:
            top[0].reshape(bottom[0].shape)
        elif self.keeps_input:
            self._kept = np.empty_like(bottom[0].data_flat)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """y from x."""
        if self._kept is not None:
            self._kept[...] = bottom[0].data_flat
        self.activate(bottom[0].data_flat, top[0].data_flat)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """gx from gy."""
        if propagate_down[0]:
            x = bottom[0].data_flat if self._kept is None else self._kept
            self.differentiate(x, top[0].data_flat, top[0].diff_flat, bottom[0].diff_flat)

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write y."""
        raise NotImplementedError

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx."""
        raise NotImplementedError


class NoGradient(Layer):
    """A layer without gradient: its bottoms never get one, and asking is an error."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Never."""
        return False

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing to do. Raises LayerError where a gradient is asked for."""
        refuse_gradient(propagate_down, range(len(propagate_down)))


def refuse_gradient(propagate_down: Sequence[bool], bottoms: Sequence[int]) -> None:
    """Raise LayerError if one of these bottoms is to get a gradient."""
    for index in bottoms:
        if index < len(propagate_down) and propagate_down[index]:
            raise LayerError(f"has no gradient with respect to bottom {index}, but propagate_down asks for it")
