"""The losses of boxes and classes that MultiBoxLoss adds up, with their gradients (SSD, equations 2 and 3)."""

from __future__ import annotations

import numpy as np

from scaffe.layers.activation.activations import sigmoid_cross_entropies

L2, SMOOTH_L1 = 0, 1  # MultiBoxLossParameter.LocLossType
SOFTMAX, LOGISTIC = 0, 1  # MultiBoxLossParameter.ConfLossType


def location_loss(kind: int, difference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss and gradient of each offset.

    Args:
        kind: L2, d² / 2; or SMOOTH_L1, the same for |d| < 1 and |d| - 1/2 beyond.
        difference: d, predicted minus true offsets, of any shape.

    Returns:
        two arrays of that shape.
    """
    if kind == L2:
        return difference * difference / 2, difference
    distance = np.abs(difference)
    near = distance < 1
    with np.errstate(over="ignore"):
        loss = np.where(near, difference * difference / 2, distance - difference.dtype.type(0.5))
    return loss, np.where(near, difference, np.sign(difference))


def class_loss(kind: int, scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss and gradient of the scores of boxes.

    Args:
        kind: SOFTMAX, -log of the softmax, clamped at the least normal float32 as in Caffe; or LOGISTIC, the cross
            entropies of the sigmoids.
        scores: (n, classes).
        targets: (n, classes), 1 at a box's label.

    Returns:
        (n,), the loss of each box, and (n, classes), the gradient of their sum.
    """
    if kind == SOFTMAX:
        highest = scores.max(axis=1, keepdims=True)
        powers = np.exp(scores - highest)
        probabilities = powers / powers.sum(axis=1, keepdims=True)
        true = (probabilities * targets).sum(axis=1)
        return -np.log(np.maximum(true, np.finfo(np.float32).tiny)), probabilities - targets
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-scores))
    return sigmoid_cross_entropies(scores, targets).sum(axis=1), sigmoid - targets
