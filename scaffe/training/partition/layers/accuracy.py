"""Accuracy where each rank has some classes' scores of all images; scores are never gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.labels import read_labels
from scaffe.layers.base.layer import Context
from scaffe.layers.loss.accuracy import Accuracy, fractions
from scaffe.training.partition.group import Group


def labels_here(labels: np.ndarray, own: slice) -> tuple[np.ndarray, np.ndarray]:
    """The images whose labels are among a rank's own classes, and the columns of these labels' scores there.

    Args:
        labels: (G,), integers.
        own: the rank's classes.
    """
    here = np.flatnonzero((labels >= own.start) & (labels < own.stop))
    return here, labels[here] - own.start


class AccuracyByClasses(Accuracy):
    """The layer's fractions of all images, the same on every rank.

    The ranks exchange each image's label's score, and how many of their own classes score as high.
    Bottoms: scores (G, own classes); labels of all images. Tops: as Accuracy's.

    Args:
        param: the whole layer's message.
        context: the net's.
        group: the ranks of the replica.
        n_classes: all of them.
    """

    def __init__(self, param: Any, context: Context, group: Group, n_classes: int) -> None:
        super().__init__(param, context)
        self._group, self._n_classes, self._own = group, n_classes, group.columns(n_classes)

    def all_classes(self, n_here: int) -> int:
        """See Accuracy: those of all ranks."""
        return self._n_classes

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops: () and (classes,)."""
        super().reshape(bottom, top)
        if len(top) > 1:
            top[1].reshape((self._n_classes,))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the fractions. Raises LayerError for a label out of range."""
        scores = bottom[0].data
        labels, counts = read_labels(bottom[1].data, self._n_classes, self.ignored)
        here, column = labels_here(labels, self._own)
        true = np.zeros(len(scores), scores.dtype)
        true[here] = scores[here, column]
        self._group.sum(true)
        as_high = np.count_nonzero(~(scores < true[:, None]), axis=1).astype(np.float64)
        self._group.sum(as_high)
        right = as_high - 1 < self.param.accuracy_param.top_k
        fractions(right[counts], labels[counts], top)
