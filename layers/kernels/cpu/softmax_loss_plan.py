"""The multinomial logistic loss of softmax over rows."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.base.labels import read_labels
from scaffe.layers.kernels.cpu.parts import LEAST_ELEMS, in_units
from scaffe.layers.kernels.cpu.softmax import EACH, LEAST_POWERS, REORDERED, softmax_some
from scaffe.layers.kernels.extents import expect_shape
from scaffe.layers.kernels.specs import LossSpec

NOT_COUNTED, FAR = -(1 << 62), 1 << 61  # a label that nobody has, and what no class's number comes near
FLOAT32_MIN = np.finfo(np.float32).tiny  # Caffe's FLT_MIN: a saturated wrong answer costs 87.33655


class SoftmaxLoss:
    """The plan of one shape; ``forward`` reads the labels and raises LayerError for one that is out of range."""

    def __init__(self, spec: LossSpec) -> None:
        self._spec = spec
        self._labels, self._found = np.zeros(0, np.int64), np.zeros((0, 3))

    def forward(self, x: np.ndarray, labels: np.ndarray, prob: np.ndarray, loss: np.ndarray) -> None:
        """Write the probabilities (rows, classes) and the loss (1,) of scores x and labels (rows,).

        Raises LayerError for a label that is out of range.
        """
        expect_shape(x.shape, prob)
        expect_shape((len(x),), labels)
        if len(self._labels) != len(x):
            self._labels, self._found = np.zeros(len(x), np.int64), np.zeros((-(-len(x) // EACH), 3))
        fixed, ignored = self._spec.divisor, NOT_COUNTED if self._spec.ignored is None else self._spec.ignored
        in_units(_add_losses, 1, len(self._found), x.size // LEAST_POWERS, x, labels, ignored,
                 x.dtype.type(FLOAT32_MIN), self._labels, prob, self._found)
        total, n_counted, n_wrong = self._found.sum(0).tolist()
        if n_wrong:
            read_labels(labels, self._spec.n_classes, self._spec.ignored)  # says which
        self._divisor = max(n_counted, 1) if fixed is None else fixed
        loss[...] = total / self._divisor

    def backward(self, prob: np.ndarray, labels: np.ndarray, weight: np.ndarray, gx: np.ndarray) -> None:
        """Write gx = (prob - onehot(label)) · weight (1,) / divisor; 0 in rows whose label is ignored."""
        expect_shape(prob.shape, gx)
        factor = prob.dtype.type(float(weight[0]) / self._divisor)
        in_units(_differentiate, 1, len(gx), gx.size // LEAST_ELEMS, prob, self._labels, factor, gx)

    def check(self) -> None:
        """Nothing to do: forward has checked the labels."""


@compiled(fastmath=REORDERED, borrows=True)
def _add_losses(first: int, stop: int, x: np.ndarray, labels: np.ndarray, ignored: int, least: float, whole: np.ndarray,
                prob: np.ndarray, found: np.ndarray) -> None:
    """Compute the probabilities of every EACH rows from ``first`` to ``stop``.

    Args:
        first, stop: numbers of these chunks; no sum depends on how many threads share them.
        labels: (rows,). ignored: the label that does not count.
        least: a probability below it costs as much as this one.
        whole: (rows,), gets the labels, NOT_COUNTED for those that do not count.
        found: (chunks, 3), gets the sum of a chunk's losses, how many rows count, and how many labels are no classes.
    """
    n_classes = x.shape[1]
    for chunk in range(first, stop):
        top, end = EACH * chunk, min(EACH * chunk + EACH, len(x))
        softmax_some(top, end, x, prob)
        total, n_counted, n_wrong = 0.0, 0, 0
        for r in range(top, end):
            label = int(labels[r]) if abs(labels[r]) < FAR else FAR
            whole[r] = NOT_COUNTED
            if label == ignored:
                continue
            n_counted += 1
            if 0 <= label < n_classes:
                whole[r] = label
                total -= np.log(max(prob[r, label], least))
            else:
                n_wrong += 1
        found[chunk, 0], found[chunk, 1], found[chunk, 2] = total, n_counted, n_wrong


@compiled
def _differentiate(start: int, stop: int, prob: np.ndarray, labels: np.ndarray, factor: float, gx: np.ndarray) -> None:
    for r in range(start, stop):
        if labels[r] == NOT_COUNTED:
            gx[r] = 0
            continue
        for c in range(gx.shape[1]):
            gx[r, c] = prob[r, c] * factor
        gx[r, labels[r]] = (prob[r, labels[r]] - prob.dtype.type(1)) * factor
