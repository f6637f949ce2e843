"""The base of loss layers: a scalar top with loss weight 1 unless the net gives another (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer


class LossLayer(Layer):
    """Bottoms: predictions and targets; top: one number. In backward, ``top[0].diff`` holds the loss weight."""

    n_bottoms = (2, 2)
    default_loss_weight = 1.0
    exact_bottoms: ClassVar[tuple[int, ...]] = (1, 2)
    auto_tops = True
    is_normalized: ClassVar[bool] = False  # whether an option says what the sum over items is divided by
    sums_gradients: ClassVar[bool] = False  # whether the gradient is of the sum over items, whatever the loss is

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Make the top a scalar. Raises LayerError unless predictions and targets have the same first dimension."""
        if not bottom[0].ndim or bottom[0].shape[:1] != bottom[1].shape[:1]:
            raise LayerError(f"wants one first dimension, got shapes {bottom[0].shape} and {bottom[1].shape}")
        top[0].reshape(())

    def allow_force_backward(self, bottom_index: int) -> bool:
        """True for all bottoms but the targets."""
        return bottom_index != 1

    def wide(self, blob: Blob) -> np.ndarray:
        """The blob's data in the type of parameters: sums of squares overflow float16, and bfloat16 rounds them."""
        found: np.ndarray = blob.data.astype(self.context.param_dtype, copy=False)
        return found

    @staticmethod
    def weight(top: Sequence[Blob]) -> float:
        """The loss weight, from the top's diff."""
        return float(top[0].diff)
