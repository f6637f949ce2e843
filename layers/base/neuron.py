"""The base of layers that compute each element of the top from the same element of the bottom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer


class Neuron(Layer):
    """One bottom, one top of the same shape; may work in place.

    A subclass implements ``activate`` and ``differentiate``. If its gradient needs x, it sets ``keeps_input``: a layer
    in place then keeps a copy of x. Otherwise ``differentiate`` must not read x, which may have been overwritten by y.
    """

    keeps_input = False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape."""
        self._kept: np.ndarray | None = None
        if bottom[0] is not top[0]:
            top[0].reshape(bottom[0].shape)
        elif self.keeps_input:
            self._kept = np.empty_like(bottom[0].data_flat)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the top's data."""
        if self._kept is not None:
            self._kept[...] = bottom[0].data_flat
        for x, y in self._pieces(bottom[0].data_flat, top[0].data_flat):
            self.activate(x, y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Compute the bottom's diff, if it is wanted."""
        if propagate_down[0]:
            x = bottom[0].data_flat if self._kept is None else self._kept
            for piece in self._pieces(x, top[0].data_flat, top[0].diff_flat, bottom[0].diff_flat):
                self.differentiate(*piece)

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Compute the output y from the input x: flat arrays in storage order; y may be x."""
        raise NotImplementedError

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Compute the input's gradient gx from x, y and the output's gradient gy.

        All are flat arrays in storage order; y may be x, and gx may be gy.
        """
        raise NotImplementedError

    def _pieces(self, *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """The arrays, or pieces of them one after another."""
        yield arrays


class Elementwise(Neuron):
    """A neuron whose every element depends on the same element of the bottom alone, computed by functions of whole
    arrays. It goes piece by piece, so that the temporaries of such functions, at most four of a piece, are short."""

    by_image = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape."""
        super().reshape(bottom, top)
        n_elems = bottom[0].n_elems
        self.temporaries = 4 * min(self.context.kernels.PIECE_ELEMS, n_elems) / max(n_elems, 1)

    def _pieces(self, *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        step = self.context.kernels.PIECE_ELEMS
        for start in range(0, arrays[0].size, step):
            yield tuple(array[start:start + step] for array in arrays)


class NoGradient(Layer):
    """A layer without a gradient; asking for one is an error."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        """False for every bottom."""
        return False

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing to do. Raises LayerError if a gradient is wanted."""
        refuse_gradient(propagate_down, range(len(propagate_down)))


def refuse_gradient(propagate_down: Sequence[bool], bottoms: Sequence[int]) -> None:
    """Raise LayerError if the gradient of one of these bottoms is asked for."""
    for index in bottoms:
        if index < len(propagate_down) and propagate_down[index]:
            raise LayerError(f"has no gradient with respect to bottom {index}, but propagate_down, force_backward or "
                             "a layer that learns below it asks for one")
