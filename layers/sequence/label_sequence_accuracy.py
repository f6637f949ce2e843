"""LabelsequenceAccuracy: how many sequences are read without a mistake (jolibrain/caffe, DeepDetect)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.neuron import NoGradient


@layer_types.register("LabelsequenceAccuracy")
class LabelSequenceAccuracy(NoGradient):
    """The fraction of sequences whose best labels, repetitions merged and blanks left out, are the wanted ones.

    Bottoms: scores (N, T, C); labels (N, L), in which blanks say nothing. Top: the fraction, a scalar.
    """

    n_bottoms = (2, 2)
    host_only = True
    exact_bottoms = (1,)
    exact_tops = (0,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top: (). Raises LayerError if the bottoms' shapes are not these."""
        x, labels = bottom[0].shape, bottom[1].shape
        if len(x) < 3 or bottom[0].count(3) != 1 or len(labels) < 2 or x[0] != labels[0] or not bottom[0].n_elems:
            raise LayerError(f"wants scores (N, T, C) and labels (N, L), got {x} and {labels}")
        top[0].reshape(())

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the fraction."""
        blank = self.param.labelsequence_accuracy_param.blank_label
        best = bottom[0].data.reshape(bottom[0].shape[:3]).argmax(axis=2)
        n_right = 0
        for found, wanted in zip(best, bottom[1].data.reshape(len(best), -1), strict=True):
            changes = np.concatenate([[True], found[1:] != found[:-1]])
            read = found[changes & (found != blank)]
            n_right += np.array_equal(read, wanted[wanted != blank].astype(np.int64))
        top[0].data[...] = n_right / len(best)
