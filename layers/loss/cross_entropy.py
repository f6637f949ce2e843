"""The infogain loss and the sigmoid cross-entropy loss (Caffe 1.0's formulas)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.input_files import read_input
from scaffe.layers.activation.activations import sigmoid, sigmoid_cross_entropies, softmax
from scaffe.layers.base.axes import (
    BATCH_SIZE,
    VALID,
    by_position,
    check_label_count,
    loss_divisor,
    normalizer,
    put_by_position,
    read_labels,
)
from scaffe.layers.base.bases import LossLayer
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.loss.losses import LEAST_PROBABILITY
from scaffe.proto.byte_text import path_of


@layer_types.register("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(LossLayer):
    """The sum over all elements of -(t log s(x) + (1 - t) log(1 - s(x))), divided by the normalization; s: sigmoid.

    Each term is computed as max(x, 0) - x t + log(1 + exp(-|x|)), which cannot overflow. Elements whose target is
    ``ignore_label`` do not count.

    Bottoms: scores x before the sigmoid, (N, ...); targets t, usually from 0 to 1, as many. Top: the loss, a scalar.
    """

    is_normalized = True
    temporaries = 4

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the normalization (BATCH_SIZE if not given) and ignore_label."""
        p = self.param.loss_param
        self.mode = p.normalization if p.HasField("normalization") else VALID if p.normalize else BATCH_SIZE
        self.ignored = p.ignore_label if p.HasField("ignore_label") else None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if bottom[0].n_elems != bottom[1].n_elems:
            raise LayerError(f"wants a target per prediction, got shapes {bottom[0].shape} and {bottom[1].shape}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = self.wide(bottom[0])
        target = bottom[1].data.reshape(x.shape)
        self._counts = np.True_ if self.ignored is None else target.astype(np.int64) != self.ignored
        losses = sigmoid_cross_entropies(x, target)
        n_valid = int(np.count_nonzero(np.broadcast_to(self._counts, x.shape)))
        fixed = self.param.loss_param.pre_fixed_normalizer
        self._divisor = normalizer(self.mode, x.shape[0], bottom[0].count(1), n_valid, fixed)
        top[0].data[...] = np.where(self._counts, losses, 0).sum() / self._divisor

    def differentiate(self, weight: float, bottom: Sequence[Blob]) -> np.ndarray:
        """(s(x) - t) · loss weight / divisor, 0 at ignored elements."""
        x = self.wide(bottom[0])
        gradient = sigmoid(x) - bottom[1].data.reshape(x.shape)
        return np.where(self._counts, gradient * (weight / self._divisor), 0)


@layer_types.register("InfogainLoss")
class InfogainLoss(LossLayer):
    """The sum over positions of -sum_k H[label, k] log softmax(x)_k, divided by the normalization.

    The infogain matrix H, (classes, classes), weighs each predicted class k for each true class. It comes from the
    third bottom, or from the file ``infogain_loss_param.source``. Probabilities below 1e-20 count as 1e-20.

    Bottoms: scores x, with the classes along ``axis``; one label for each position of the other axes; optionally H.
    Tops: the loss, a scalar; optionally softmax(x), of the scores' shape.
    """

    is_normalized = True
    n_bottoms = (2, 3)
    n_tops = (1, 2)
    _least_probability = LEAST_PROBABILITY

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.loss_param
        if p.HasField("normalize"):
            raise LayerError('normalize is not for this layer; use "normalization"')
        self.ignored = p.ignore_label if p.HasField("ignore_label") else None
        self._matrix = self._read_matrix() if len(bottom) < 3 else None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self.axis = check_label_count(bottom[0], bottom[1], self._options().axis)
        n_classes = bottom[0].shape[self.axis]
        self.temporaries = 4 + 5 / n_classes  # besides a gradient's size, a few numbers for each position
        self.persistent_temporaries = 1 + 3 / n_classes
        n_elems = bottom[2].n_elems if self._matrix is None else self._matrix.size
        if n_elems != n_classes**2:
            raise LayerError(f"wants an infogain matrix of {n_classes} x {n_classes}, got {n_elems} elements")
        if len(top) > 1:
            top[1].reshape(bottom[0].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._prob = softmax(by_position(self.wide(bottom[0]), self.axis), -1)
        n_classes = self._prob.shape[1]
        self._labels, self._counts = read_labels(bottom[1].data, n_classes, self.ignored)
        logs = np.log(np.maximum(self._prob, self._prob.dtype.type(self._least_probability)))
        losses = -(self._gains(bottom, n_classes) * logs).sum(axis=1)
        shape = bottom[0].count(0, self.axis), bottom[0].count(self.axis + 1)
        self._divisor = loss_divisor(self.param.loss_param, *shape, int(self._counts.sum()))
        top[0].data[...] = losses[self._counts].sum() / self._divisor
        if len(top) > 1:
            put_by_position(self._prob, self.axis, top[1].data)

    def differentiate(self, weight: float, bottom: Sequence[Blob]) -> np.ndarray:
        """(p_k sum_j H[label, j] - H[label, k]) · loss weight / divisor, 0 at ignored positions; p is softmax(x)."""
        gains = self._gains(bottom, self._prob.shape[1])
        gradient = self._prob * gains.sum(axis=1, keepdims=True) - gains
        gradient *= (self._counts * (weight / self._divisor))[:, None]
        shape = bottom[0].shape
        return np.moveaxis(gradient.reshape(*shape[:self.axis], *shape[self.axis + 1:], -1), -1, self.axis)

    def _options(self) -> Any:
        """The message whose ``axis`` says along which axis the classes are."""
        return self.param.infogain_loss_param

    def _gains(self, bottom: Sequence[Blob], n_classes: int) -> np.ndarray:
        """The row of H for each label, (positions, classes)."""
        matrix = bottom[2].data if self._matrix is None else self._matrix
        rows: np.ndarray = matrix.reshape(n_classes, n_classes)[self._labels]
        return rows

    def _read_matrix(self) -> Any:
        """H from ``source``, a file that holds a binary BlobProto."""
        source = path_of(self.param.infogain_loss_param.source)
        if not source:
            raise LayerError("wants infogain_loss_param.source or a third bottom for the infogain matrix")
        message = type(self.param)().blobs.add()
        try:
            message.ParseFromString(read_input(source))
        except Exception as error:
            raise LayerError(f"cannot read an infogain matrix from {source}: {error}") from error
        return self.context.kernels.to_device(np.array(message.double_data or message.data, self.context.dtype))


@layer_types.register("SigmoidCrossEntropyBalanceLoss")
class SigmoidCrossEntropyBalanceLoss(LossLayer):
    """The sum of sigmoid cross-entropies, each class weighted by the other's share in its item, divided by N.

    Elements whose target is neither 0 nor 1 count in no item's loss. The fork gives them the gradient sigmoid(x) - t
    all the same; here it is 0.

    Bottoms: scores x before the sigmoid, (N, ...); targets 0 or 1, as many. Top: the loss, a scalar.
    """

    temporaries, persistent_temporaries = 9.5, 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if bottom[0].n_elems != bottom[1].n_elems or not bottom[0].n_elems:
            raise LayerError(f"wants a target per prediction, got shapes {bottom[0].shape} and {bottom[1].shape}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = self.wide(bottom[0]).reshape(bottom[0].shape[0], -1)
        target = bottom[1].data.reshape(x.shape)
        positive, negative = target == 1, target == 0
        n_positive, n_negative = (found.sum(axis=1, keepdims=True) for found in (positive, negative))
        n_counted = np.maximum(n_positive + n_negative, 1)
        self._weights = (positive * (n_negative / n_counted) + negative * (n_positive / n_counted)).astype(x.dtype)
        top[0].data[...] = (sigmoid_cross_entropies(x, target) * self._weights).sum() / len(x)

    def differentiate(self, weight: float, bottom: Sequence[Blob]) -> np.ndarray:
        x = self.wide(bottom[0]).reshape(self._weights.shape)
        gradient: np.ndarray = (sigmoid(x) - bottom[1].data.reshape(x.shape)) * self._weights
        return gradient * (weight / len(x))
