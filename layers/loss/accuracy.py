"""Accuracy of predictions, overall and per class (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import by_position, check_label_count, read_labels
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.neuron import NoGradient


@layer_types.register("Accuracy")
class Accuracy(NoGradient):
    """The fraction of predictions whose true class is among the ``top_k`` highest scores.

    A prediction is correct if fewer than ``top_k`` other classes score as high as the true class or higher. A tie
    thus counts against the true class, and so does a NaN score.

    Bottoms: scores, with the classes along ``axis``; one label for each position of the other axes.
    Tops: the fraction, a scalar; optionally the fraction for each class, (classes,), 0 for a class with no labels.
    """

    n_bottoms = (2, 2)
    exact_bottoms = (1,)
    exact_tops = (0, 1)
    n_tops = (1, 2)
    temporaries = 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops: () and (classes,). Raises LayerError if the labels do not fit the scores, or there are fewer
        classes than ``top_k``."""
        p = self.param.accuracy_param
        self.axis = check_label_count(bottom[0], bottom[1], p.axis)
        n_classes = bottom[0].shape[self.axis]
        most = self.all_classes(n_classes)
        if p.top_k > most:
            raise LayerError(f"top_k must be at most {most}, the number of classes, got {p.top_k}")
        self.ignored = p.ignore_label if p.HasField("ignore_label") else None
        top[0].reshape(())
        if len(top) > 1:
            top[1].reshape((n_classes,))

    def all_classes(self, n_here: int) -> int:
        """The number of classes, of which the bottom has ``n_here``."""
        return n_here

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the fractions. Raises LayerError for a label out of range."""
        scores = by_position(bottom[0].data, self.axis)
        labels, counts = read_labels(bottom[1].data, scores.shape[1], self.ignored)
        scores, labels = scores[counts], labels[counts]
        true = np.take_along_axis(scores, labels[:, None], axis=1)
        better = np.count_nonzero(~(scores < true), axis=1) - 1
        fractions(better < self.param.accuracy_param.top_k, labels, top)


def fractions(right: np.ndarray, labels: np.ndarray, top: Sequence[Blob]) -> None:
    """Write the fraction of right predictions, and if there is a second top that of each class.

    Args:
        right: whether each prediction is right, (n,).
        labels: its class, (n,).
        top: the layer's tops, shaped.
    """
    top[0].data[...] = right.mean() if right.size else 0
    if len(top) > 1:
        n_classes = top[1].n_elems
        n_right = np.bincount(labels[right], minlength=n_classes)
        top[1].data[...] = n_right / np.maximum(np.bincount(labels, minlength=n_classes), 1)
