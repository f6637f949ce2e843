"""SoftmaxWithLossOHEM: the softmax loss for online hard example mining (R-FCN, Dai et al. 2016, section 2).

Formula: the R-FCN fork of Caffe, as in intel/caffe.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.labels import read_labels
from scaffe.layers.base.layer import layer_types
from scaffe.layers.loss.softmax import SoftmaxWithLoss

LEAST_PROBABILITY = np.finfo(np.float32).tiny  # Caffe's FLT_MIN


@layer_types.register("SoftmaxWithLossOHEM")
class SoftmaxWithLossOhem(SoftmaxWithLoss):
    """SoftmaxWithLoss with a third top: the loss of each position, of the labels' shape, 0 where the label is ignored.

    Bottoms and the first two tops are those of SoftmaxWithLoss. Gradients of the second and third top are not used.
    """

    n_tops = (1, 3)
    recordable = False
    host_only = True
    temporaries, lasting = 2, 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops: (), the scores' shape and the labels' shape."""
        super().reshape(bottom, top)
        if len(top) > 2:
            top[2].reshape(bottom[1].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the losses and the probabilities."""
        super().forward(bottom, top)
        if len(top) < 3:
            return
        probabilities = self._rows.data(self._output)
        labels, counts = read_labels(bottom[1].data, self._rows.n_columns, self._ignored)
        right = np.maximum(probabilities[np.arange(len(labels)), labels], LEAST_PROBABILITY)
        top[2].data[...] = np.where(counts, -np.log(right), 0).reshape(top[2].shape)
