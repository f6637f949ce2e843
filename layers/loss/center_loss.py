"""CenterLoss: the distance of features from their class's centre (Wen et al., ECCV 2016; caffe-face's fork)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_axis, read_labels
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.loss import LossLayer
from scaffe.layers.base.neuron import refuse_gradient


@layer_types.register("CenterLoss")
class CenterLoss(LossLayer):
    """sum |x - c_label|^2 / (2 N) (ydwen/caffe-face, center_loss_layer.cpp).

    The centres' gradient is the sum of c - x over their items, divided by 1 + their number, whatever the loss weight:
    the paper's rule for moving them, which their learning rate then scales.

    Bottoms: features (N, ...); one label an item. Top: the loss, a scalar. Blob: centres (num_output, features).
    """

    temporaries, lasting = 3, 1
    host_only = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the centres. Raises LayerError if num_output is missing or ``axis`` is not 1."""
        p = self.param.center_loss_param
        if p.num_output < 1:
            raise LayerError("needs a num_output, the number of classes, above 0")
        if check_axis(bottom[0], p.axis) != 1:
            raise LayerError(f"features begin at axis 1, got axis {p.axis} of {bottom[0].shape}")
        self.add_blob((p.num_output, bottom[0].count(1)), p.center_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top: (). Raises LayerError if the bottoms do not fit the centres or one another."""
        super().reshape(bottom, top)
        n_items, n_features = bottom[0].shape[0], self.blobs[0].shape[1]
        if bottom[0].count(1) != n_features or bottom[1].n_elems != n_items or not n_items:
            raise LayerError(f"wants items of {n_features} features and one label each, got {bottom[0].shape} and "
                             f"{bottom[1].shape}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the loss. Raises LayerError for a label without a centre."""
        centres = self.blobs[0].data
        self._labels, _ = read_labels(bottom[1].data, len(centres))
        self._distances = bottom[0].data.reshape(len(self._labels), -1) - centres[self._labels]
        top[0].data[...] = np.square(self._distances).sum() / (2 * len(self._labels))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add the centres' gradient; write the features'."""
        refuse_gradient(propagate_down, [1])
        weight = self.weight(top)
        if self.param_propagate_down[0]:
            given = self.param.loss_weight[0] if self.param.loss_weight else 1.0
            moved = np.zeros_like(self.blobs[0].data)
            np.subtract.at(moved, self._labels, self._distances)
            shares = 1 + np.bincount(self._labels, minlength=len(moved))
            self.blobs[0].diff[...] += moved / shares[:, None] * (weight / given if given else 1)
        if propagate_down[0]:
            bottom[0].diff[...] = (weight / len(self._labels) * self._distances).reshape(bottom[0].shape)
