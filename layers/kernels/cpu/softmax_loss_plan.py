"""The multinomial logistic loss of softmax over rows."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.layers.base.labels import read_labels
from scaffe.layers.kernels.cpu.parts import LEAST_ELEMS, in_units
from scaffe.layers.kernels.cpu.softmax import EACH, LEAST_POWERS, REORDERED, softmax_some
from scaffe.layers.kernels.extents import expect_shape
from scaffe.layers.kernels.specs import LossSpec

FLOAT32_MIN = np.finfo(np.float32).tiny  # Caffe's FLT_MIN: a saturated wrong answer costs 87.33655


class SoftmaxLoss:
    """The plan of one shape; ``forward`` reads the labels and raises LayerError for one that is out of range."""

    def __init__(self, spec: LossSpec) -> None:
        self._spec = spec

    def forward(self, x: np.ndarray, labels: np.ndarray, prob: np.ndarray, loss: np.ndarray) -> None:
        """Write the probabilities (rows, classes) and the loss (1,) of scores x and labels (rows,).

        Raises LayerError for a label that is out of range.
        """
        self._labels, self._counts = read_labels(labels, self._spec.n_classes, self._spec.ignored)
        expect_shape(x.shape, prob)
        expect_shape((len(x),), self._labels)
        fixed = self._spec.divisor
        self._divisor = max(int(self._counts.sum()), 1) if fixed is None else fixed
        sums = np.empty(-(-len(x) // EACH))
        in_units(_add_losses, 1, len(sums), x.size // LEAST_POWERS, x, self._labels, self._counts,
                 x.dtype.type(FLOAT32_MIN), prob, sums)
        loss[...] = sums.sum() / self._divisor

    def backward(self, prob: np.ndarray, labels: np.ndarray, weight: np.ndarray, gx: np.ndarray) -> None:
        """Write gx = (prob - onehot(label)) · weight (1,) / divisor; 0 in rows whose label is ignored."""
        expect_shape(prob.shape, gx)
        factor = prob.dtype.type(float(weight[0]) / self._divisor)
        in_units(_differentiate, 1, len(gx), gx.size // LEAST_ELEMS, prob, self._labels, self._counts, factor, gx)

    def check(self) -> None:
        """Nothing to do: forward has checked the labels."""


@compiled(fastmath=REORDERED, borrows=True)
def _add_losses(first: int, stop: int, x: np.ndarray, labels: np.ndarray, counts: np.ndarray, least: float,
                prob: np.ndarray, sums: np.ndarray) -> None:
    """The probabilities of some rows, and the sum of the losses of every EACH of them, which depends on no thread."""
    for chunk in range(first, stop):
        total, top, end = 0.0, EACH * chunk, min(EACH * chunk + EACH, len(x))
        softmax_some(top, end, x, prob)
        for r in range(top, end):
            if counts[r]:
                total -= np.log(max(prob[r, labels[r]], least))
        sums[chunk] = total


@compiled
def _differentiate(start: int, stop: int, prob: np.ndarray, labels: np.ndarray, counts: np.ndarray, factor: float,
                   gx: np.ndarray) -> None:
    for r in range(start, stop):
        if counts[r]:
            for c in range(gx.shape[1]):
                gx[r, c] = prob[r, c] * factor
            gx[r, labels[r]] = (prob[r, labels[r]] - prob.dtype.type(1)) * factor
        else:
            gx[r] = 0
