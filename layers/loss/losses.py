"""The Euclidean, L1, hinge, multinomial logistic, contrastive and center losses (N: items in the batch)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis, read_labels
from scaffe.layers.base.bases import LossLayer, refuse_gradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types

LEAST_PROBABILITY = 1e-20  # Caffe's clamp before a logarithm
NEAR_ZERO = 1e-4  # keeps the contrastive gradient finite for equal pairs
L1, L2 = 1, 2  # HingeLossParameter.Norm


@layer_types.register("EuclideanLoss")
class EuclideanLoss(LossLayer):
    """sum((a - b)^2) / (2 N).

    Bottoms: a and b, (N, ...), with the same number of elements per item. Top: the loss, a scalar.
    """

    temporaries, persistent_temporaries = 2, 1
    gradient_bottoms = (0, 1)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        _require_items(bottom[0])
        if bottom[0].n_elems != bottom[1].n_elems:
            raise LayerError(f"wants bottoms of one size per item, got shapes {bottom[0].shape} and {bottom[1].shape}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._slopes = self.wide(bottom[0]) - self.wide(bottom[1]).reshape(bottom[0].shape)
        top[0].data[...] = np.square(self._slopes).sum() / (2 * bottom[0].shape[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradients: slopes / N · loss weight for the first bottom, its negative for the second."""
        scale = float(top[0].diff) / bottom[0].shape[0]
        for blob, sign, wanted in zip(bottom, (1, -1), propagate_down, strict=True):
            if wanted:
                blob.diff[...] = (sign * scale * self._slopes).reshape(blob.shape)


@layer_types.register("L1Loss")
class L1Loss(EuclideanLoss):
    """sum(|a - b|) / N (NVIDIA/caffe, l1_loss_layer.cpp); where a = b, the gradient is 0.

    Bottoms: a and b, (N, ...), with the same number of elements per item. Top: the loss, a scalar.
    """

    temporaries, persistent_temporaries = 3, 1

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        difference = self.wide(bottom[0]) - self.wide(bottom[1]).reshape(bottom[0].shape)
        self._slopes = np.sign(difference)
        top[0].data[...] = np.abs(difference).sum() / bottom[0].shape[0]


@layer_types.register("HingeLoss")
class HingeLoss(LossLayer):
    """One-against-all hinge loss: the sum over items and classes of max(0, 1 - t x), divided by N.

    x is the class's score; t is 1 for the item's own class and -1 for the others. With norm L2 each term is squared.

    Bottoms: scores (N, classes...); labels, one for each item. Top: the loss, a scalar.
    """

    temporaries, persistent_temporaries = 5, 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        _require_labels(bottom)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        scores = self.wide(bottom[0]).reshape(bottom[0].shape[0], -1)
        labels, _ = read_labels(bottom[1].data, scores.shape[1])
        self._signs = np.full_like(scores, -1)
        self._signs[self.context.xp.arange(len(labels)), labels] = 1
        self._margins = np.maximum(0, 1 - self._signs * scores)
        total = self._margins.sum() if self.param.hinge_loss_param.norm == L1 else np.square(self._margins).sum()
        top[0].data[...] = total / scores.shape[0]

    def differentiate(self, weight: float, bottom: Sequence[Blob]) -> np.ndarray:
        """-t / N · loss weight where 1 - t x > 0, else 0; for L2, times 2 (1 - t x)."""
        is_l1 = self.param.hinge_loss_param.norm == L1
        slope: np.ndarray = np.sign(self._margins) if is_l1 else 2 * self._margins
        gradient: np.ndarray = -(weight / bottom[0].shape[0]) * self._signs * slope
        return gradient


@layer_types.register("MultinomialLogisticLoss")
class MultinomialLogisticLoss(LossLayer):
    """The mean over items of -log(probability of the item's label).

    Bottoms: probabilities (N, classes...), such as a Softmax layer's top; labels, one for each item.
    Top: the loss, a scalar. Probabilities below 1e-20 count as 1e-20.
    """

    temporaries = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        _require_labels(bottom)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        _, true = self._true(bottom)
        top[0].data[...] = -np.log(true).sum() / len(true)

    def differentiate(self, weight: float, bottom: Sequence[Blob]) -> np.ndarray:
        """-loss weight / (N · probability) at each item's label, 0 elsewhere."""
        place, true = self._true(bottom)
        gradient = np.zeros_like(true, shape=(len(true), bottom[0].count(1)))
        gradient[place] = -weight / (len(true) * true)
        return gradient

    def _true(self, bottom: Sequence[Blob]) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """The labels' indices into (items, classes), and the probabilities there, at least 1e-20."""
        rows = self.wide(bottom[0]).reshape(bottom[0].shape[0], -1)
        labels, _ = read_labels(bottom[1].data, rows.shape[1])
        place = self.context.xp.arange(len(labels)), labels
        return place, np.maximum(rows[place], rows.dtype.type(LEAST_PROBABILITY))


@layer_types.register("ContrastiveLoss")
class ContrastiveLoss(LossLayer):
    """Half the mean over N pairs: d^2 for a similar pair, max(margin - d, 0)^2 for a dissimilar one.

    d is the Euclidean distance between the two vectors of a pair (Hadsell, Chopra and LeCun 2006). With
    ``legacy_version`` a dissimilar pair costs max(margin - d^2, 0).

    Bottoms: the pairs' first and second vectors, both (N, C) or (N, C, 1, 1); (N,) numbers, 0 for a dissimilar pair.
    Top: the loss, a scalar.
    """

    temporaries, persistent_temporaries = 3, 1
    n_bottoms = (3, 3)
    gradient_bottoms = (0, 1)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        _require_items(bottom[0])
        n_items = bottom[0].shape[0]
        vectors = all(b.ndim >= 2 and b.count(2) == 1 for b in bottom[:2])
        if not vectors or bottom[0].n_elems != bottom[1].n_elems or bottom[2].n_elems != n_items:
            raise LayerError("wants two bottoms (N, C) and one (N), got shapes "
                             + ", ".join(str(b.shape) for b in bottom))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.contrastive_loss_param
        n_items = bottom[0].shape[0]
        self._difference = self.wide(bottom[0]).reshape(n_items, -1) - self.wide(bottom[1]).reshape(n_items, -1)
        self._squared = np.square(self._difference).sum(axis=1)
        if p.legacy_version:
            apart = np.maximum(p.margin - self._squared, 0)
        else:
            apart = np.square(np.maximum(p.margin - np.sqrt(self._squared), 0))
        self._similar = bottom[2].data.reshape(-1).astype(np.int64) != 0
        top[0].data[...] = np.where(self._similar, self._squared, apart).sum() / (2 * n_items)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the vectors' gradients: similar pairs attract, dissimilar ones closer than the margin repel."""
        refuse_gradient(propagate_down, [2])
        factors = np.where(self._similar, 1, -self._push()) * (float(top[0].diff) / len(self._similar))
        gradient = factors[:, None].astype(self._difference.dtype) * self._difference
        for blob, sign, wanted in zip(bottom, (1, -1), propagate_down, strict=False):
            if wanted:
                blob.diff[...] = (sign * gradient).reshape(blob.shape)

    def _push(self) -> np.ndarray:
        """The factor of (a - b) in each pair's gradient if it is dissimilar: 0 beyond the margin."""
        p = self.param.contrastive_loss_param
        if p.legacy_version:
            return np.where(p.margin > self._squared, 1, 0)
        distance = np.sqrt(self._squared)
        push: np.ndarray = np.maximum(p.margin - distance, 0) / (distance + NEAR_ZERO)
        return push


def _require_labels(bottom: Sequence[Blob]) -> None:
    """Raise LayerError unless there are items in bottom 0, and bottom 1 holds one label for each."""
    _require_items(bottom[0])
    if bottom[1].n_elems != bottom[0].shape[0]:
        raise LayerError(f"wants one label an item, got shapes {bottom[0].shape} and {bottom[1].shape}")


def _require_items(bottom: Blob) -> None:
    """Raise LayerError unless there is at least one item: these losses are divided by how many there are."""
    if not bottom.shape[0]:
        raise LayerError(f"needs at least one item, got a bottom of shape {bottom.shape}")


@layer_types.register("CenterLoss")
class CenterLoss(LossLayer):
    """sum |x - c_label|^2 / (2 N) (ydwen/caffe-face, center_loss_layer.cpp).

    The centres' gradient is the sum of c - x over their items, divided by 1 + their number, whatever the loss weight:
    the paper's rule for moving them, which their learning rate then scales.

    Bottoms: features (N, ...); one label an item. Top: the loss, a scalar. Blob: centres (num_output, features).
    """

    temporaries, persistent_temporaries = 3, 1
    host_only = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.center_loss_param
        if p.num_output < 1:
            raise LayerError("needs a num_output, the number of classes, above 0")
        if check_axis(bottom[0], p.axis) != 1:
            raise LayerError(f"features begin at axis 1, got axis {p.axis} of {bottom[0].shape}")
        self.add_blob((p.num_output, bottom[0].count(1)), p.center_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        n_items, n_features = bottom[0].shape[0], self.blobs[0].shape[1]
        if bottom[0].count(1) != n_features or bottom[1].n_elems != n_items or not n_items:
            raise LayerError(f"wants items of {n_features} features and one label each, got {bottom[0].shape} and "
                             f"{bottom[1].shape}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        centres = self.blobs[0].data
        self._labels, _ = read_labels(bottom[1].data, len(centres))
        self._distances = bottom[0].data.reshape(len(self._labels), -1) - centres[self._labels]
        top[0].data[...] = np.square(self._distances).sum() / (2 * len(self._labels))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, [1])
        weight = float(top[0].diff)
        if self.param_propagate_down[0]:
            given = self.param.loss_weight[0] if self.param.loss_weight else 1.0
            moved = np.zeros_like(self.blobs[0].data)
            np.subtract.at(moved, self._labels, self._distances)
            shares = 1 + np.bincount(self._labels, minlength=len(moved))
            self.blobs[0].diff[...] += moved / shares[:, None] * (weight / given if given else 1)
        if propagate_down[0]:
            bottom[0].diff[...] = (weight / len(self._labels) * self._distances).reshape(bottom[0].shape)
