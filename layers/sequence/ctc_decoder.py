"""CTCGreedyDecoder: the likeliest label of each step, without repeats and blanks (caffe_ocr, ctc_decoder_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.neuron import NoGradient


@layer_types.register("CTCGreedyDecoder")
class CtcGreedyDecoder(NoGradient):
    """Decodes scores; with labels, says how well.

    ``blank_index`` below 0 is the last class. Without ctc_merge_repeated equal labels in a row stay.

    Bottoms: scores (T, N, C); optionally labels (N, L), which end below 0 and in which blanks say nothing.
    Top: the labels found, (N, T, 1, 1), filled up with -1; or with labels (1, 2, 1, 1): 1 - the mean over the
    sequences of edit distance / length of the longer one, and the fraction of sequences without a mistake.
    """

    n_bottoms = (1, 2)
    host_only = True
    exact_bottoms = (1,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if the bottoms' shapes are not these, or the blank is no class."""
        x = bottom[0]
        if x.ndim not in (3, 4) or x.count(3) != 1 or not x.n_elems:
            raise LayerError(f"wants scores (T, N, C), got shape {x.shape}")
        n_steps, n_items, n_classes = x.shape[:3]
        blank = self.param.ctc_decoder_param.blank_index
        self._blank = blank if blank >= 0 else n_classes - 1
        if self._blank >= n_classes:
            raise LayerError(f"blank_index {blank} is not one of the {n_classes} classes")
        if len(bottom) > 1 and (bottom[1].ndim < 2 or bottom[1].shape[0] != n_items):
            raise LayerError(f"wants labels ({n_items}, L), got shape {bottom[1].shape}")
        top[0].reshape((1, 2, 1, 1) if len(bottom) > 1 else (n_items, n_steps, 1, 1))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Decode, and compare with labels if there are any."""
        best = bottom[0].data.reshape(bottom[0].shape[:3]).argmax(2)
        found = [self._decoded(column) for column in best.T]
        if len(bottom) > 1:
            top[0].data[...] = np.reshape(self._accuracy(found, bottom[1]), (1, 2, 1, 1))
            return
        top[0].data[...] = -1
        for item, labels in enumerate(found):
            top[0].data[item, : len(labels), 0, 0] = labels

    def _decoded(self, best: np.ndarray) -> np.ndarray:
        """The labels of one sequence, from the best class of each step."""
        kept = best != self._blank
        if self.param.ctc_decoder_param.ctc_merge_repeated:
            kept[1:] &= best[1:] != best[:-1]
        labels: np.ndarray = best[kept]
        return labels

    def _accuracy(self, found: Sequence[np.ndarray], labels: Blob) -> tuple[float, float]:
        lost, n_right = 0.0, 0
        for mine, row in zip(found, labels.data.reshape(len(found), -1), strict=True):
            ends = np.flatnonzero(row < 0)
            wanted = np.rint(row[: ends[0] if len(ends) else len(row)]).astype(np.int64)
            wanted = wanted[wanted != self._blank]
            longer = max(len(mine), len(wanted))
            if longer:
                distance = edit_distance(mine, wanted)
                lost += distance / longer
                n_right += distance == 0
        return 1 - lost / len(found), n_right / len(found)


def edit_distance(a: np.ndarray, b: np.ndarray) -> int:
    """How many labels must be put in, left out or changed to make b of a (Levenshtein 1966)."""
    row = np.arange(len(b) + 1)
    for i, label in enumerate(a, 1):
        last, row = row, np.full_like(row, i)
        for j in range(1, len(b) + 1):
            row[j] = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (label != b[j - 1]))
    return int(row[-1])
