"""SigmoidCrossEntropyBalanceLoss: few positive pixels count as much as many negative ones (HED, Xie and Tu 2015).

Formula: kmaninis/OSVOS-caffe, sigmoid_cross_entropy_balance_loss_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.activation.activations import sigmoid, sigmoid_cross_entropies
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.loss import LossLayer
from scaffe.layers.base.neuron import refuse_gradient


@layer_types.register("SigmoidCrossEntropyBalanceLoss")
class SigmoidCrossEntropyBalanceLoss(LossLayer):
    """The sum of sigmoid cross-entropies, each class weighted by the other's share in its item, divided by N.

    Elements whose target is neither 0 nor 1 count in no item's loss. The fork gives them the gradient sigmoid(x) - t
    all the same; here it is 0.

    Bottoms: scores x before the sigmoid, (N, ...); targets 0 or 1, as many. Top: the loss, a scalar.
    """

    temporaries, lasting = 9.5, 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top: (). Raises LayerError if there is not one target for each score."""
        super().reshape(bottom, top)
        if bottom[0].n_elems != bottom[1].n_elems or not bottom[0].n_elems:
            raise LayerError(f"wants a target per prediction, got shapes {bottom[0].shape} and {bottom[1].shape}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the loss."""
        x = self.wide(bottom[0]).reshape(bottom[0].shape[0], -1)
        target = bottom[1].data.reshape(x.shape)
        positive, negative = target == 1, target == 0
        n_positive, n_negative = (found.sum(axis=1, keepdims=True) for found in (positive, negative))
        n_counted = np.maximum(n_positive + n_negative, 1)
        self._weights = (positive * (n_negative / n_counted) + negative * (n_positive / n_counted)).astype(x.dtype)
        top[0].data[...] = (sigmoid_cross_entropies(x, target) * self._weights).sum() / len(x)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the scores' gradient."""
        refuse_gradient(propagate_down, [1])
        if propagate_down[0]:
            x = self.wide(bottom[0]).reshape(self._weights.shape)
            gradient = (sigmoid(x) - bottom[1].data.reshape(x.shape)) * self._weights
            bottom[0].diff[...] = (gradient * (self.weight(top) / len(x))).reshape(bottom[0].shape)
