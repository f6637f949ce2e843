"""Connectionist temporal classification, as forks have it: the losses by warp-ctc, and the greedy decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import LossLayer, NoGradient
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import layer_types


class Target(NamedTuple):
    """The target of one sequence: its labels, int64 (n,), and how many of its steps count."""

    labels: np.ndarray
    n_steps: int


def score_shape(scores: Blob) -> Shape:
    """(T, N, C), or LayerError unless scores have these axes, perhaps with one of length 1 behind them."""
    if scores.ndim not in (3, 4) or scores.count(3) != 1 or not scores.n_elems:
        raise LayerError(f"wants scores (T, N, C), got shape {scores.shape}")
    return scores.shape[:3]


class _Ctc(LossLayer):
    """The mean over the sequences of -log of the probability of their labels. The gradient is that of the sum, not of
    the mean, times the loss weight, as in the forks."""

    sums_gradients = True
    n_bottoms = (2, 2)
    exact_bottoms = (1, 2, 3)
    host_only = True
    temporaries, persistent_temporaries = 8, 2
    gradient_bottoms = (0,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._size = score_shape(bottom[0])
        top[0].reshape(())

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        from scaffe.layers.kernels.cpu.softmax import ctc_cost

        _, n_items, n_classes = self._size
        blank = self._blank()
        if not 0 <= blank < n_classes:
            raise LayerError(f"the blank label {blank} is not one of the {n_classes} classes")
        scores = bottom[0].data.reshape(self._size).astype(np.float64)
        chances = scores - scores.max(2, keepdims=True)
        chances -= np.log(np.exp(chances).sum(2, keepdims=True))
        self._gradient = np.zeros(self._size)
        costs = []
        for item, target in enumerate(self._targets(bottom)):
            wrong = target.labels[(target.labels < 0) | (target.labels >= n_classes)]
            if len(wrong):
                raise LayerError(f"label {wrong[0]} of sequence {item} is not one of the {n_classes} classes")
            gradient = np.zeros((target.n_steps, n_classes))
            seen = np.ascontiguousarray(chances[: target.n_steps, item])
            costs.append(ctc_cost(seen, target.labels, blank, gradient))
            self._gradient[: target.n_steps, item] = gradient
        finite = [cost for cost in costs if np.isfinite(cost)]
        top[0].data[...] = sum(finite) / len(finite) if finite else np.nan

    def differentiate(self, weight: float, bottom: Sequence[Blob]) -> np.ndarray:
        return weight * self._gradient

    def _blank(self) -> int:
        raise NotImplementedError

    def _targets(self, bottom: Sequence[Blob]) -> list[Target]:
        """The target of each sequence."""
        raise NotImplementedError

    def _unpadded(self, labels: Blob, n_steps: int) -> list[Target]:
        """Targets from labels (N, L) in which blanks are ignored."""
        rows = labels.data.reshape(self._size[1], -1).astype(np.int64)
        return [Target(row[row != self._blank()], n_steps) for row in rows]


@layer_types.register("WarpCTCLoss")
class WarpCtcLoss(_Ctc):
    """Connectionist temporal classification (senlinuc/caffe_ocr, warp_ctc_loss_layer.cpp); see ``_Ctc``.

    Bottoms: scores (T, N, C), before their softmax; then one of
    - labels (N, L), in which blanks are ignored; all T steps count;
    - indicators (T, N), 0 where another sequence begins, so that the first ends there; labels (T, N), below 0 after
      their end, and counted from 0 without the blank if blank_index is 0;
    - numbers of steps (N,); numbers of labels (N,); labels (L, N).
    blank_index is the blank's class; the other options have no effect, as in the fork. Top: the loss, a scalar.
    """

    n_bottoms = (2, 4)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        n_steps, n_items, _ = self._size
        wanted = {2: [("labels", 1, n_items)], 3: [("indicators", 1, n_steps * n_items), ("labels", 2, n_items)],
                  4: [("lengths", 1, n_items), ("lengths", 2, n_items), ("labels", 3, n_items)]}[len(bottom)]
        for what, index, n_elems in wanted:
            found = bottom[index].n_elems
            if found % n_elems or what != "labels" and found != n_elems or not found:
                raise LayerError(f"wants {what} of {n_elems} elements, or for labels a multiple, for scores "
                                 f"{bottom[0].shape}; bottom {index} is {bottom[index].shape}")

    def _blank(self) -> int:
        return int(self.param.ctc_loss_param.blank_index)

    def _targets(self, bottom: Sequence[Blob]) -> list[Target]:
        if len(bottom) == 2:
            return self._unpadded(bottom[1], self._size[0])
        if len(bottom) == 3:
            return self._indicated(bottom[1], bottom[2])
        lengths, n_labels = (b.data.reshape(-1).astype(np.int64) for b in bottom[1:3])
        labels = bottom[3].data.reshape(-1, self._size[1]).astype(np.int64)
        if lengths.min() < 0 or lengths.max() > self._size[0] or n_labels.min() < 0 or n_labels.max() > len(labels):
            raise LayerError(f"wants at most {self._size[0]} steps and {len(labels)} labels, got up to "
                             f"{lengths.max()} and {n_labels.max()}")
        return [Target(labels[: n_labels[i], i].copy(), int(lengths[i])) for i in range(len(lengths))]

    def _indicated(self, indicators: Blob, labels: Blob) -> list[Target]:
        n_steps, n_items, _ = self._size
        begins = np.rint(indicators.data.reshape(n_steps, n_items)) == 0
        rows = labels.data.reshape(-1, n_items)
        targets = []
        for i in range(n_items):
            begun, ended = np.flatnonzero(begins[1:, i]), np.flatnonzero(rows[:, i] < 0)
            n_seen = int(begun[0]) + 1 if len(begun) else n_steps
            row = np.rint(rows[: ended[0] if len(ended) else len(rows), i]).astype(np.int64)
            if len(row) > n_seen or not len(row) and n_seen > 1:
                raise LayerError(f"sequence {i} has {n_seen} step(s) and {len(row)} label(s)")
            targets.append(Target(row + (self._blank() == 0), n_seen if len(row) else 0))
        return targets


@layer_types.register("CtcLoss")
class CtcLoss(_Ctc):
    """Connectionist temporal classification, of forks with alphabet_size, time_step and blank_label; see ``_Ctc``.

    Bottoms: scores (T, N, alphabet_size), before their softmax, of which time_step steps count; labels (N, L), in
    which blanks are ignored. Top: the loss, a scalar.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        p, (n_steps, n_items, n_classes) = self.param.ctc_loss_param, self._size
        if p.alphabet_size != n_classes or not 1 <= p.time_step <= n_steps:
            raise LayerError(f"wants alphabet_size {n_classes} and time_step 1 to {n_steps} for scores "
                             f"{bottom[0].shape}, got {p.alphabet_size} and {p.time_step}")
        if bottom[1].ndim < 2 or bottom[1].shape[0] != n_items:
            raise LayerError(f"wants labels ({n_items}, L), got shape {bottom[1].shape}")

    def _blank(self) -> int:
        return int(self.param.ctc_loss_param.blank_label)

    def _targets(self, bottom: Sequence[Blob]) -> list[Target]:
        targets = self._unpadded(bottom[1], int(self.param.ctc_loss_param.time_step))
        if not any(len(target.labels) for target in targets):
            raise LayerError("all labels are blank")
        return targets


@layer_types.register("CTCGreedyDecoder")
class CtcGreedyDecoder(NoGradient):
    """Decodes scores; with labels, measures the accuracy.

    ``blank_index`` below 0 is the last class. Without ctc_merge_repeated equal labels in a row stay.

    Bottoms: scores (T, N, C); optionally labels (N, L), which end below 0 and in which blanks are ignored.
    Top: the labels found, (N, T, 1, 1), filled up with -1; or with labels (1, 2, 1, 1): 1 - the mean over the
    sequences of edit distance / length of the longer one, and the fraction of sequences without a mistake.
    """

    n_bottoms = (1, 2)
    host_only = True
    exact_bottoms = (1,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        n_steps, n_items, n_classes = score_shape(bottom[0])
        blank = self.param.ctc_decoder_param.blank_index
        self._blank = blank if blank >= 0 else n_classes - 1
        if self._blank >= n_classes:
            raise LayerError(f"blank_index {blank} is not one of the {n_classes} classes")
        if len(bottom) > 1 and (bottom[1].ndim < 2 or bottom[1].shape[0] != n_items):
            raise LayerError(f"wants labels ({n_items}, L), got shape {bottom[1].shape}")
        top[0].reshape((1, 2, 1, 1) if len(bottom) > 1 else (n_items, n_steps, 1, 1))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
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
    """How many labels must be inserted, deleted or replaced to turn a into b (Levenshtein 1966)."""
    row = np.arange(len(b) + 1)
    for i, label in enumerate(a, 1):
        last, row = row, np.full_like(row, i)
        for j in range(1, len(b) + 1):
            row[j] = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (label != b[j - 1]))
    return int(row[-1])
