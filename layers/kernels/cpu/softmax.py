"""Softmax over the last axis of rows, and its multinomial logistic loss; connectionist temporal classification (Graves
et al., ICML 2006): cost and gradient of one sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.loops import exponential
from scaffe.layers.base.axes import read_labels
from scaffe.layers.kernels.cpu.threads.parts import LEAST_ELEMS, in_units
from scaffe.layers.kernels.extents import expect_shape
from scaffe.layers.kernels.specs import LossSpec

LEAST_POWERS = 1 << 14  # of a part: handing one to a thread takes as long as this many exponentials
EACH = 16  # rows at a time
REORDERED = {"reassoc"}  # lets sums be vectorized


def softmax_rows(x: np.ndarray, y: np.ndarray) -> None:
    """y[r] = exp(x[r] - max) / sum, for each row of (rows, classes). y may be x."""
    expect_shape(x.shape, y)
    in_units(_softmax_rows, 1, len(x), x.size // LEAST_POWERS, x, y)


def softmax_rows_back(y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
    """Gradient of softmax: gx = y (gy - sum(gy y)) for each row. gx may be gy."""
    expect_shape(y.shape, gy, gx)
    in_units(_softmax_rows_back, 1, len(y), y.size // LEAST_POWERS, y, gy, gx)


@compiled(inline="always")
def softmax_some(first: int, stop: int, x: np.ndarray, y: np.ndarray) -> None:
    """``softmax_rows`` of rows [first, stop), few enough to stay in the cache."""
    inputs, outputs = x[first:stop], y[first:stop]
    for r in range(len(inputs)):
        row, out = inputs[r], outputs[r]
        top = _largest(row)
        for c in range(row.size):
            out[c] = row[c] - top
    powers = outputs.reshape(outputs.size)
    for i in range(powers.size):
        powers[i] = exponential(powers[i])
    for r in range(len(outputs)):
        out = outputs[r]
        total = out[0]
        for c in range(1, out.size):
            total += out[c]
        for c in range(out.size):
            out[c] /= total


@compiled(inline="always")
def _largest(row: np.ndarray) -> Any:
    """The largest number except NaNs, found in four streams: in one, each comparison would wait for the last."""
    a = b = c = d = row[0]
    n = row.size // 4
    for i in range(n):
        a, b = max(row[i], a), max(row[n + i], b)
        c, d = max(row[2 * n + i], c), max(row[3 * n + i], d)
    for i in range(4 * n, row.size):
        a = max(row[i], a)
    return max(a, b, c, d)


@compiled(fastmath=REORDERED, borrows=True)
def _softmax_rows(start: int, stop: int, x: np.ndarray, y: np.ndarray) -> None:
    for first in range(start, stop, EACH):
        softmax_some(first, min(first + EACH, stop), x, y)


@compiled
def _softmax_rows_back(start: int, stop: int, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
    for r in range(start, stop):
        dot = y.dtype.type(0)
        for c in range(y.shape[1]):
            dot += gy[r, c] * y[r, c]
        for c in range(y.shape[1]):
            gx[r, c] = (gy[r, c] - dot) * y[r, c]


NOT_COUNTED, FAR = -(1 << 62), 1 << 61  # stands for an ignored label; a bound beyond all class numbers
FLOAT32_MIN = np.finfo(np.float32).tiny  # Caffe's FLT_MIN: a saturated wrong answer costs 87.33655


class SoftmaxLoss:
    """A SoftmaxLossPlan whose ``forward`` raises LayerError for a label that is out of range."""

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
        """Does nothing: forward has checked the labels."""


@compiled(fastmath=REORDERED, borrows=True)
def _add_losses(first: int, stop: int, x: np.ndarray, labels: np.ndarray, ignored: int, least: float, whole: np.ndarray,
                prob: np.ndarray, found: np.ndarray) -> None:
    """Compute the probabilities of chunks [first, stop) of EACH rows; no sum depends on how many threads share them.
    ``whole`` gets the labels, NOT_COUNTED for ``ignored`` ones; found (chunks, 3) a chunk's sum of losses, its rows
    that count, and its labels that are no classes. A probability below ``least`` costs as much as that one."""
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


@compiled
def ctc_cost(log_chances: np.ndarray, labels: np.ndarray, blank: int, gradient: np.ndarray) -> float:
    """-log of the probability of labels, int64 (n,), none of them blank, by the log of the softmax (steps, classes).
    Its gradient by the scores before their softmax is written. Both are 0 if the steps are too few for the labels, as
    in warp-ctc."""
    gradient[:, :] = 0
    n_steps, n_repeats = len(log_chances), 0
    for i in range(1, len(labels)):
        n_repeats += labels[i] == labels[i - 1]
    if len(labels) + n_repeats > n_steps or n_steps == 0:
        return 0.0
    classes = np.full(2 * len(labels) + 1, blank)  # the labels with a blank before, between and after them
    for i in range(len(labels)):
        classes[2 * i + 1] = labels[i]
    before, after = _before(log_chances, classes, blank), _after(log_chances, classes, blank)
    whole = before[-1, -1]
    if len(classes) > 1:
        whole = np.logaddexp(whole, before[-1, -2])
    for t in range(n_steps):
        for c in range(log_chances.shape[1]):
            gradient[t, c] = np.exp(log_chances[t, c])
        for s in range(len(classes)):
            gradient[t, classes[s]] -= np.exp(before[t, s] + after[t, s] - whole)
    return float(-whole)


@compiled
def _before(log_chances: np.ndarray, classes: np.ndarray, blank: int) -> np.ndarray:
    """Graves' alpha: log of the probability of each state after each step, (steps, states)."""
    out = np.full((len(log_chances), len(classes)), -np.inf)
    for t in range(len(log_chances)):
        for s in range(len(classes)):
            total = 0.0 if t == 0 and s < 2 else -np.inf
            if t > 0:
                total = out[t - 1, s]
                if s > 0:
                    total = np.logaddexp(total, out[t - 1, s - 1])
                if s > 1 and classes[s] != blank and classes[s] != classes[s - 2]:
                    total = np.logaddexp(total, out[t - 1, s - 2])
            out[t, s] = total + log_chances[t, classes[s]]
    return out


@compiled
def _after(log_chances: np.ndarray, classes: np.ndarray, blank: int) -> np.ndarray:
    """Graves' beta: log of the probability of all later steps from each state, (steps, states)."""
    out = np.full((len(log_chances), len(classes)), -np.inf)
    n_steps, n_places = out.shape
    for t in range(n_steps - 1, -1, -1):
        for s in range(n_places):
            total = 0.0 if t == n_steps - 1 and s >= n_places - 2 else -np.inf
            if t < n_steps - 1:
                total = out[t + 1, s] + log_chances[t + 1, classes[s]]
                if s + 1 < n_places:
                    total = np.logaddexp(total, out[t + 1, s + 1] + log_chances[t + 1, classes[s + 1]])
                if s + 2 < n_places and classes[s + 2] != blank and classes[s + 2] != classes[s]:
                    total = np.logaddexp(total, out[t + 1, s + 2] + log_chances[t + 1, classes[s + 2]])
            out[t, s] = total
    return out
