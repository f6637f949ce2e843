"""Softmax, alone and with the logistic loss."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import BATCH_SIZE, VALID, check_axis, check_label_count, normalizer
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.base.loss import LossLayer
from scaffe.layers.base.rows import Rows
from scaffe.layers.kernels.specs import LossSpec


@layer_types.register("Softmax")
class Softmax(Layer):
    """y = exp(x) / sum of exp(x) along ``axis`` (1 by default), any shape."""

    recordable = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Top as the bottom. Raises LayerError for an axis that the bottom lacks."""
        axis = check_axis(bottom[0], self.param.softmax_param.axis)
        if top[0] is not bottom[0]:
            top[0].reshape(bottom[0].shape)
        self._rows = Rows(bottom[0], axis)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Row by row."""
        y = self._rows.data(top[0])
        self.context.kernels.softmax_rows(self._rows.data(bottom[0]), y)
        self._rows.put_data(y, top[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """gx = y (gy - sum of gy y)."""
        if not propagate_down[0]:
            return
        rows, x, y = self._rows, bottom[0], top[0]
        gx = rows.diff(x)
        self.context.kernels.softmax_rows_back(rows.data(y), rows.diff(y), gx)
        rows.put_diff(gx, x)


@layer_types.register("SoftmaxWithLoss")
class SoftmaxWithLoss(LossLayer):
    """-log of the softmax of the right class, summed and divided by the normalization; labels one a position.

    Options: softmax_param.axis, loss_param.ignore_label, normalization and the old normalize. The probabilities are
    a second top where asked for. Behaviour: Caffe 1.0.

    Raises:
        LayerError: a label that is no class, labels that are not one a position.
    """

    recordable = True
    n_tops = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the options."""
        loss = self.param.loss_param
        self._ignored = loss.ignore_label if loss.HasField("ignore_label") else None
        self._mode = loss.normalization
        if not loss.HasField("normalization") and loss.HasField("normalize"):
            self._mode = VALID if loss.normalize else BATCH_SIZE
        self._probabilities = self.context.blob()

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """A scalar, and the probabilities as the scores."""
        super().reshape(bottom, top)
        self._axis = check_label_count(bottom[0], bottom[1], self.param.softmax_param.axis)
        self._rows = Rows(bottom[0], self._axis)
        outer, inner = bottom[0].count(0, self._axis), bottom[0].count(self._axis + 1)
        divisor = None if self._mode == VALID else normalizer(self._mode, outer, inner, 0)
        self._plan = self.context.kernels.softmax_loss(LossSpec(
            self._rows.n_rows, self._rows.n_columns, self._ignored, divisor, self.context.dtype))
        probabilities = top[1] if len(top) > 1 else self._probabilities
        probabilities.reshape(bottom[0].shape)
        self._output = probabilities

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Loss and probabilities."""
        y = self._rows.data(self._output)
        self._plan.forward(self._rows.data(bottom[0]), bottom[1].data.reshape(-1), y, top[0].data_flat)
        self._rows.put_data(y, self._output)

    def check_values(self) -> None:
        """Labels are classes."""
        self._plan.check()

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """(probability - 1 at the right class) · loss weight / divisor; 0 at ignored positions."""
        if len(propagate_down) > 1 and propagate_down[1]:
            raise LayerError("has no gradient with respect to labels (bottom 1)")
        if not propagate_down[0]:
            return
        gx = self._rows.diff(bottom[0])
        self._plan.backward(self._rows.data(self._output), bottom[1].data.reshape(-1), top[0].diff_flat, gx)
        self._rows.put_diff(gx, bottom[0])
