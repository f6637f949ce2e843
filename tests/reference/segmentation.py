"""Naive formulas of the segmentation forks' layers (alexgkendall/caffe-segnet, hszhao/PSPNet), loop by loop."""

from __future__ import annotations

import numpy as np


def bn(x: np.ndarray, scale: np.ndarray, shift: np.ndarray, mean: np.ndarray, variance: np.ndarray,
       eps: float) -> np.ndarray:
    """(x - mean) / sqrt(variance + eps) · scale + shift, channel by channel."""
    y = np.empty_like(x)
    for c in range(x.shape[1]):
        y[:, c] = (x[:, c] - mean[c]) / (variance[c] + eps) ** 0.5 * scale[c] + shift[c]
    return y


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and biased variance of each channel."""
    channels = [x[:, c].ravel() for c in range(x.shape[1])]
    return np.array([c.mean() for c in channels]), np.array([((c - c.mean()) ** 2).mean() for c in channels])


def seg_accuracy(scores: np.ndarray, labels: np.ndarray, ignored: tuple[int, ...],
                 counts: np.ndarray) -> tuple[float, float, float]:
    """Pixel accuracy, mean recall and mean overlap; adds the pixels to ``counts`` (true by predicted) first."""
    n_items, n_classes, height, width = scores.shape
    for n in range(n_items):
        for h in range(height):
            for w in range(width):
                label = int(labels[n, 0, h, w])
                if label not in ignored:
                    best = max(range(n_classes), key=lambda c: (scores[n, c, h, w], c))  # noqa: B023
                    counts[label, best] += 1
    recalls, overlaps = [], []
    for c in range(n_classes):
        if counts[c].sum():
            recalls.append(counts[c, c] / counts[c].sum())
        union = counts[c].sum() + counts[:, c].sum() - counts[c, c]
        overlaps.append(1.0 if union == counts[c, c] else counts[c, c] / union)
    total = counts.sum()
    return (np.trace(counts) / total if total else 0.0, float(np.mean(recalls)) if recalls else 0.0,
            float(np.mean(overlaps)))
