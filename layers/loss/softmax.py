"""Softmax, and SoftmaxWithLoss, which adds the multinomial logistic loss (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import (
    VALID,
    Rows,
    check_axis,
    check_label_count,
    loss_divisor,
    normalization,
)
from scaffe.layers.base.bases import LossLayer
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.kernels.specs import LossSpec
from scaffe.layers.loss.cross_entropy import InfogainLoss


@layer_types.register("Softmax")
class Softmax(Layer):
    """y = exp(x) / sum(exp(x)), with the sum along ``axis`` (default 1). Bottom and top may have any shape."""

    recordable = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        axis = check_axis(bottom[0], self.param.softmax_param.axis)
        if top[0] is not bottom[0]:
            top[0].reshape(bottom[0].shape)
        self._rows = Rows(bottom[0], axis)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        y = self._rows.data(top[0])
        self.context.kernels.softmax_rows(self._rows.data(bottom[0]), y)
        self._rows.put_data(y, top[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """gx = y (gy - sum(gy y)), with the sum along ``axis``."""
        if not propagate_down[0]:
            return
        rows, x, y = self._rows, bottom[0], top[0]
        gx = rows.diff(x)
        self.context.kernels.softmax_rows_back(rows.data(y), rows.diff(y), gx)
        rows.put_diff(gx, x)


@layer_types.register("SoftmaxWithLoss")
class SoftmaxWithLoss(LossLayer):
    """The sum over positions of -log softmax(x)[label], divided by the normalization (Caffe 1.0's behaviour).

    Bottoms: scores x, with the classes along ``softmax_param.axis``; one label for each position of the other axes.
    Tops: the loss, a scalar; optionally softmax(x), of the scores' shape.

    Positions whose label is ``loss_param.ignore_label`` do not count. ``loss_param.normalization`` says what the sum is
    divided by; its older form ``normalize`` counts only without it. With ``loss_param.weight_by_label_freqs`` it is
    ``WeightedSoftmaxLoss``.

    Raises LayerError if there is not one label for each position, or a label is not a class.
    """

    is_normalized = True
    recordable = True
    n_tops = (1, 2)

    @classmethod
    def form(cls, param: Any, bottom: Sequence[Blob]) -> type[Layer]:
        return WeightedSoftmaxLoss if param.loss_param.weight_by_label_freqs else cls

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        loss = self.param.loss_param
        self._ignored = loss.ignore_label if loss.HasField("ignore_label") else None
        self._probabilities = self.context.blob()

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._axis = check_label_count(bottom[0], bottom[1], self.param.softmax_param.axis)
        self._rows = Rows(bottom[0], self._axis)
        outer, inner = bottom[0].count(0, self._axis), bottom[0].count(self._axis + 1)
        counted = normalization(self.param.loss_param) == VALID
        divisor = None if counted else loss_divisor(self.param.loss_param, outer, inner, 0)
        self._plan = self.context.kernels.softmax_loss(LossSpec(
            self._rows.n_rows, self._rows.n_columns, self._ignored, divisor, self.context.dtype))
        self.temporaries = 7 / self._rows.n_columns  # a few numbers for each row
        self.persistent_temporaries = 3 / self._rows.n_columns
        probabilities = top[1] if len(top) > 1 else self._probabilities
        probabilities.reshape(bottom[0].shape)
        self._output = probabilities

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        y = self._rows.data(self._output)
        self._plan.forward(self._rows.data(bottom[0]), bottom[1].data.reshape(-1), y, top[0].data_flat)
        self._rows.put_data(y, self._output)

    def check_values(self) -> None:
        self._plan.check()

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the scores' gradient: (probability - [1 at the label]) · loss weight / divisor, 0 where ignored."""
        if len(propagate_down) > 1 and propagate_down[1]:
            raise LayerError("has no gradient with respect to labels (bottom 1)")
        if not propagate_down[0]:
            return
        gx = self._rows.diff(bottom[0])
        self._plan.backward(self._rows.data(self._output), bottom[1].data.reshape(-1), top[0].diff_flat, gx)
        self._rows.put_diff(gx, bottom[0])


class WeightedSoftmaxLoss(InfogainLoss):
    """What a SoftmaxWithLoss with ``weight_by_label_freqs`` is: an infogain loss whose matrix has a diagonal alone.

    The sum over positions of -w[label] log softmax(x)[label], divided as without weights, w being class_weighting.

    Bottoms: scores x, with the classes along ``softmax_param.axis``; one label for each position of the other axes.
    Tops: the loss, a scalar; optionally softmax(x), of the scores' shape.
    """

    n_bottoms = (2, 2)
    _least_probability = float(np.finfo(np.float32).tiny)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.loss_param
        self.ignored = p.ignore_label if p.HasField("ignore_label") else None
        self._matrix = self.context.kernels.to_device(np.diag(list(p.class_weighting)), self.context.dtype)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        n_weights, axis = len(self.param.loss_param.class_weighting), self._options().axis
        if -bottom[0].ndim <= axis < bottom[0].ndim and bottom[0].shape[axis] != n_weights:
            raise LayerError(f"wants a class_weighting for each of {bottom[0].shape[axis]} classes, got {n_weights}")
        super().reshape(bottom, top)

    def _options(self) -> Any:
        return self.param.softmax_param
