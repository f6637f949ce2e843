"""Base classes of layers: elementwise ones, losses, layers that fuse a ReLU, layers without a gradient."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob, Shape, claim_together
from scaffe.layers.base.layer import Layer


class Neuron(Layer):
    """One bottom, one top of the same shape; may work in place.

    A subclass implements ``activate`` and ``differentiate``. If its gradient needs x, it sets ``keeps_input``, and the
    layer keeps a copy of x where it works in place. Otherwise ``differentiate`` must not read x, which y may have
    overwritten.
    """

    keeps_input = False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._kept: np.ndarray | None = None
        if bottom[0] is not top[0]:
            top[0].reshape(bottom[0].shape)
        elif self.keeps_input:
            self._kept = np.empty_like(bottom[0].data_flat)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._kept is not None:
            self._kept[...] = bottom[0].data_flat
        for x, y in self._pieces(bottom[0].data_flat, top[0].data_flat):
            self.activate(x, y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            x = bottom[0].data_flat if self._kept is None else self._kept
            for piece in self._pieces(x, top[0].data_flat, top[0].diff_flat, bottom[0].diff_flat):
                self.differentiate(*piece)

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Compute the output y from the input x: flat arrays in storage order; y may be x."""
        raise NotImplementedError

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Compute the input's gradient gx from x, y and the output's gradient gy: flat arrays in storage order; y may
        be x, and gx may be gy."""
        raise NotImplementedError

    def _pieces(self, *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the arrays, or consecutive pieces of them."""
        yield arrays


class Elementwise(Neuron):
    """A neuron whose every element depends on the same element of the bottom alone, computed by array functions piece
    by piece, so that their temporaries, at most four of a piece, are small."""

    by_image = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        n_elems = bottom[0].n_elems
        self.temporaries = 4 * min(self.context.kernels.PIECE_ELEMS, n_elems) / max(n_elems, 1)

    def _pieces(self, *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        step = self.context.kernels.PIECE_ELEMS
        for start in range(0, arrays[0].size, step):
            yield tuple(array[start:start + step] for array in arrays)


class NoGradient(Layer):
    """A layer without a gradient; asking for one is an error."""

    gradient_bottoms = ()

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, range(len(propagate_down)))


def refuse_gradient(propagate_down: Sequence[bool], bottoms: Sequence[int]) -> None:
    """Raise LayerError if the gradient of one of these bottoms is asked for."""
    for index in bottoms:
        if index < len(propagate_down) and propagate_down[index]:
            raise LayerError(f"has no gradient with respect to bottom {index}, but propagate_down, force_backward or "
                             "a layer that learns below it asks for one")


class LossLayer(Layer):
    """A loss. Bottoms: predictions and targets; top: one number. In backward, ``top[0].diff`` is the loss weight."""

    n_bottoms = (2, 2)
    default_loss_weight = 1.0
    exact_bottoms: ClassVar[tuple[int, ...]] = (1, 2)
    auto_tops = True
    is_normalized: ClassVar[bool] = False  # whether an option sets what the sum over items is divided by
    sums_gradients: ClassVar[bool] = False  # whether the gradient is of the sum over items, whatever the loss is
    gradient_bottoms: ClassVar[Container[int]] = (0, 2)  # the targets have none

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if not bottom[0].ndim or bottom[0].shape[:1] != bottom[1].shape[:1]:
            raise LayerError(f"wants one first dimension, got shapes {bottom[0].shape} and {bottom[1].shape}")
        top[0].reshape(())

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, range(1, len(bottom)))
        if propagate_down[0]:
            bottom[0].diff[...] = self.differentiate(float(top[0].diff), bottom).reshape(bottom[0].shape)

    def differentiate(self, weight: float, bottom: Sequence[Blob]) -> np.ndarray:
        """The gradient of the predictions, with as many elements, times the loss weight. For losses whose predictions
        alone have a gradient; others implement ``backward``."""
        raise NotImplementedError

    def wide(self, blob: Blob) -> np.ndarray:
        """The blob's data in the type of parameters: sums of squares overflow float16, and bfloat16 rounds them."""
        found: np.ndarray = blob.data.astype(self.context.param_dtype, copy=False)
        return found


class FusesRelu(Layer):
    """A layer whose ``forward`` takes the slope below 0 of a ReLU as an optional argument, and applies that ReLU."""

    _fused_slope: float | None = None

    def fuse(self, following: Layer) -> bool:
        """Fuse the following layer if it is a ReLU whose slope is not negative. Returns whether it was fused."""
        slope = getattr(following, "relu_slope", None)
        if slope is None or self._fused_slope is not None:
            return False
        self._fused_slope = slope
        return True

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        """Compute the tops' data, then a ReLU of that slope below 0 (None: no ReLU)."""
        raise NotImplementedError

    def forward_fused(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute this layer and the fused ReLU in one pass; ``top`` gets the ReLU's output."""
        self.forward(bottom, top, self._fused_slope)


class Weighted(FusesRelu):
    """A layer with weights and perhaps a bias, whose kernels are a ``WeightedPlan``."""

    _plan: Any

    def _bias(self) -> np.ndarray | None:
        return self.blobs[1].data_flat if len(self.blobs) > 1 else None

    def _backward_weights(self, x: np.ndarray, gy: np.ndarray) -> None:
        """Add the gradients that are wanted, of bottom and top in the plan's order."""
        learns = self.param_propagate_down
        if not learns[0]:
            self.blobs[1].diff_flat[...] += gy.reshape(-1, self.blobs[1].n_elems).sum(0, dtype=self.blobs[1].dtype)
            return
        (gw, *gb), fresh = claim_together([blob for blob, wanted in zip(self.blobs, learns, strict=True) if wanted])
        self._plan.backward_weights(x, gy, gw.reshape(self.blobs[0].shape), gb[0] if gb else None, fresh)


class ZeroGradient(Layer):
    """A layer whose backward writes zeros, as in Caffe's forks, whose nets seldom say ``propagate_down: false``."""

    gradient_bottoms = ()

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        clear_wanted(bottom, propagate_down)


def clear_wanted(bottom: Sequence[Blob], propagate_down: Sequence[bool]) -> None:
    """Write zeros to the gradients asked for."""
    for blob, wanted in zip(bottom, propagate_down, strict=True):
        if wanted:
            blob.diff_flat[...] = 0


def as_four_axes(shape: Shape) -> Shape:
    """(num, channels, height, width) of a shape of at most four axes: those that it lacks have length 1."""
    return (*shape, *(1,) * (4 - len(shape)))
