"""SoftmaxWithLoss with a weight a class (alexgkendall/caffe-segnet, softmax_loss_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.loss.cross_entropy import InfogainLoss


class WeightedSoftmaxLoss(InfogainLoss):
    """What a SoftmaxWithLoss with ``weight_by_label_freqs`` is: an infogain loss whose matrix has a diagonal alone.

    The sum over positions of -w[label] log softmax(x)[label], divided as without weights, w being class_weighting.

    Bottoms: scores x, with the classes along ``softmax_param.axis``; one label for each position of the other axes.
    Tops: the loss, a scalar; optionally softmax(x), of the scores' shape.
    """

    n_bottoms = (2, 2)
    _least_probability = float(np.finfo(np.float32).tiny)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the weights."""
        p = self.param.loss_param
        self.ignored = p.ignore_label if p.HasField("ignore_label") else None
        self._matrix = self.context.kernels.to_device(np.diag(list(p.class_weighting)), self.context.dtype)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """See InfogainLoss. Raises LayerError unless there is a weight for each class."""
        n_weights, axis = len(self.param.loss_param.class_weighting), self._axis()
        if -bottom[0].ndim <= axis < bottom[0].ndim and bottom[0].shape[axis] != n_weights:
            raise LayerError(f"wants a class_weighting for each of {bottom[0].shape[axis]} classes, got {n_weights}")
        super().reshape(bottom, top)

    def _axis(self) -> int:
        return int(self.param.softmax_param.axis)
