"""Losses and accuracy by plain loops over (items, classes, positions)."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np


def euclidean(a: np.ndarray, b: np.ndarray) -> float:
    """sum((a - b)^2) / (2 N)."""
    return sum((x - y) ** 2 for x, y in zip(a.ravel(), b.ravel())) / (2 * len(a))


def hinge(scores: np.ndarray, labels: np.ndarray, power: int = 1) -> float:
    """Mean over items of the sum over classes of max(0, 1 - t x)^power."""
    total = 0.0
    for row, label in zip(scores, labels):
        for k, x in enumerate(row):
            total += max(0.0, 1 - (x if k == label else -x)) ** power
    return total / len(scores)


def multinomial_logistic(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean of -log of the label's probability, clamped at 1e-20."""
    return -sum(log(max(row[int(k)], 1e-20)) for row, k in zip(probabilities, labels)) / len(labels)


def contrastive(a: np.ndarray, b: np.ndarray, similar: np.ndarray, margin: float, legacy: bool) -> float:
    """Half the mean of d^2 for similar pairs, max(margin - d, 0)^2 (legacy: max(margin - d^2, 0)) for others."""
    total = 0.0
    for x, y, s in zip(a, b, similar):
        squared = sum((u - v) ** 2 for u, v in zip(x, y))
        apart = max(margin - squared, 0.0) if legacy else max(margin - sqrt(squared), 0.0) ** 2
        total += squared if s else apart
    return total / (2 * len(a))


def sigmoid_cross_entropy(x: np.ndarray, targets: np.ndarray, ignored: int | None, mode: str) -> float:
    """Sum of -(t log s + (1 - t) log(1 - s)) over targets that count, normalised."""
    total, n_valid = 0.0, 0
    for v, t in zip(x.ravel(), targets.ravel()):
        if ignored is not None and int(t) == ignored:
            continue
        s = 1 / (1 + exp(-v))
        total -= t * log(s) + (1 - t) * log(1 - s)
        n_valid += 1
    return total / divisor(mode, len(x), x.size // len(x), n_valid)


def infogain(scores: np.ndarray, labels: np.ndarray, gains: np.ndarray, ignored: int | None, mode: str) -> float:
    """-sum_k H[label, k] log softmax_k; scores (outer, classes, inner), labels (outer, inner)."""
    outer, classes, inner = scores.shape
    total, n_valid = 0.0, 0
    for i in range(outer):
        for j in range(inner):
            if ignored is not None and labels[i, j] == ignored:
                continue
            powers = [exp(scores[i, k, j]) for k in range(classes)]
            for k in range(classes):
                total -= gains[int(labels[i, j]), k] * log(max(powers[k] / sum(powers), 1e-20))
            n_valid += 1
    return total / divisor(mode, outer, inner, n_valid)


def divisor(mode: str, outer: int, inner: int, n_valid: int) -> int:
    """What a loss is divided by, at least 1."""
    return max(1, {"FULL": outer * inner, "VALID": n_valid, "BATCH_SIZE": outer, "NONE": 1}[mode])


def accuracy(scores: np.ndarray, labels: np.ndarray, top_k: int = 1, ignored: int | None = None,
             ) -> tuple[float, list[float]]:
    """Share of right positions, and per class; scores (outer, classes, inner), labels (outer, inner).

    A position is right if fewer than top_k other classes score at least as much as the true one.
    """
    outer, classes, inner = scores.shape
    right, seen = [0] * classes, [0] * classes
    for i in range(outer):
        for j in range(inner):
            label = int(labels[i, j])
            if label == ignored:
                continue
            rivals = sum(scores[i, k, j] >= scores[i, label, j] for k in range(classes) if k != label)
            right[label] += rivals < top_k
            seen[label] += 1
    return sum(right) / max(sum(seen), 1), [r / max(s, 1) for r, s in zip(right, seen)]
