"""Accuracy of predictions, overall and per class (Caffe 1.0), and of a segmentation (PSPNet, DeepLab)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import (
    by_position,
    check_label_count,
    read_labels,
)
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types


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
        """Shape the tops: () and (classes,)."""
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
        scores = by_position(bottom[0].data, self.axis)
        labels, counts = read_labels(bottom[1].data, scores.shape[1], self.ignored)
        scores, labels = scores[counts], labels[counts]
        true = np.take_along_axis(scores, labels[:, None], axis=1)
        better = np.count_nonzero(~(scores < true), axis=1) - 1
        fractions(better < self.param.accuracy_param.top_k, labels, top)


def fractions(right: np.ndarray, labels: np.ndarray, top: Sequence[Blob]) -> None:
    """Write the fraction of right predictions, (n,), and if there is a second top that of each class, of labels
    (n,)."""
    top[0].data[...] = right.mean() if right.size else 0
    if len(top) > 1:
        n_classes = top[1].n_elems
        n_right = np.bincount(labels[right], minlength=n_classes)
        top[1].data[...] = n_right / np.maximum(np.bincount(labels, minlength=n_classes), 1)


@layer_types.register("SegAccuracy")
class SegAccuracy(NoGradient):
    """Three numbers from the confusion matrix of pixels, true class by predicted class.

    A pixel's predicted class is the one with the highest score, the last of them in a tie. Pixels whose label is one
    of ``ignore_label`` do not count. The matrix counts one batch, or without ``reset`` all batches so far. ``metric``
    has no effect, as in the forks: all three numbers are always given.

    Bottoms: scores (N, C, H, W); labels (N, 1, H, W).
    Top: (1, 1, 1, 3): the fraction of pixels that are right; the mean over the classes that occur of the fraction of
    their pixels that are right; and the mean over all classes of intersection over union, 1 for one that has no union.
    """

    n_bottoms = (2, 2)
    exact_bottoms = (1,)
    exact_tops = (0, 1, 2)
    host_only = True
    temporaries = 4

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        n_classes = bottom[0].shape[1] if bottom[0].ndim == 4 else 0
        self._confusion = np.zeros((n_classes, n_classes), np.int64)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        scores, labels = bottom[0].shape, bottom[1].shape
        if len(scores) != 4 or scores[1] < 1 or labels != (scores[0], 1, *scores[2:]):
            raise LayerError(f"wants scores (N, C, H, W) and labels (N, 1, H, W), got shapes {scores} and {labels}")
        if scores[1] != len(self._confusion):
            raise LayerError(f"counts {len(self._confusion)} classes, the scores are {scores}")
        top[0].reshape((1, 1, 1, 3))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, n_classes = self.param.seg_accuracy_param, len(self._confusion)
        labels = bottom[1].data.reshape(-1).astype(np.int64)
        counts = ~np.isin(labels, list(p.ignore_label))
        labels = labels[counts]
        wrong = (labels < 0) | (labels >= n_classes)
        if wrong.any():
            raise LayerError(f"label {labels[wrong][0]} is neither one of the {n_classes} classes nor an ignore_label")
        scores = by_position(bottom[0].data, 1)[counts]
        forecast = n_classes - 1 - np.argmax(scores[:, ::-1], axis=1)
        if p.reset:
            self._confusion[...] = 0
        pairs = np.bincount(labels * n_classes + forecast, minlength=n_classes**2)
        self._confusion += pairs.reshape(n_classes, n_classes)
        top[0].data[...] = summary(self._confusion)


def summary(confusion: np.ndarray) -> tuple[float, float, float]:
    """Accuracy, mean recall and mean intersection over union of a confusion matrix: counts, int64 (classes, classes),
    true class by predicted class."""
    right, true, total = np.diag(confusion), confusion.sum(1), int(confusion.sum())
    occurring = true > 0
    recall = float((right[occurring] / true[occurring]).mean()) if occurring.any() else 0.0
    union = true + confusion.sum(0) - right
    overlap = np.where(union == right, 1.0, right / np.maximum(union, 1))
    return float(right.sum() / total) if total else 0.0, recall, float(overlap.mean())
