"""The multinomial logistic loss of softmax over rows."""

from __future__ import annotations

import numpy as np

from scaffe.layers.base.labels import read_labels
from scaffe.layers.kernels.cpu.softmax import softmax_rows
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
        softmax_rows(x, prob)
        self._labels, self._counts = read_labels(labels, self._spec.n_classes, self._spec.ignored)
        fixed = self._spec.divisor
        self._divisor = max(int(self._counts.sum()), 1) if fixed is None else fixed
        right = np.maximum(prob[np.arange(len(self._labels)), self._labels], FLOAT32_MIN)
        loss[...] = -np.log(right, dtype=prob.dtype)[self._counts].sum(dtype=np.float64) / self._divisor

    def backward(self, prob: np.ndarray, labels: np.ndarray, weight: np.ndarray, gx: np.ndarray) -> None:
        """Write gx = (prob - onehot(label)) · weight (1,) / divisor; 0 in rows whose label is ignored."""
        gx[...] = prob
        gx[np.arange(len(self._labels)), self._labels] -= 1
        gx *= float(weight[0]) / self._divisor
        gx[~self._counts] = 0

    def check(self) -> None:
        """Nothing to do: forward has checked the labels."""
