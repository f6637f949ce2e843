"""Boxes as arrays: how a box is written as offsets from a prior box, and read back (SSD, Liu et al. 2016, section 2.2).

A box is (xmin, ymin, xmax, ymax) in fractions of the image's width and height. Formulas as in weiliu89/caffe,
branch ssd, ``bbox_util.cpp``.
"""

from __future__ import annotations

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError

CORNER, CENTER_SIZE, CORNER_SIZE = 1, 2, 3  # PriorBoxParameter.CodeType


def read_priors(blob: Blob) -> tuple[np.ndarray, np.ndarray]:
    """The prior boxes and their variances, both (P, 4), from a blob (1, 2, 4 P)."""
    boxes, variances = blob.data.reshape(2, -1, 4)
    return boxes, variances


def count_priors(blob: Blob) -> int:
    """P of a blob of prior boxes (1, 2, 4 P). Raises LayerError for another shape."""
    n_elems = blob.n_elems
    if blob.ndim < 3 or blob.shape[0] != 1 or blob.shape[1] != 2 or n_elems % 8 or not n_elems:
        raise LayerError(f"wants prior boxes of shape (1, 2, 4 P), got {blob.shape}")
    return n_elems // 8


def encode(code: int, priors: np.ndarray, variances: np.ndarray | None, boxes: np.ndarray) -> np.ndarray:
    """Boxes as offsets from prior boxes.

    Args:
        code: CORNER, CENTER_SIZE or CORNER_SIZE.
        priors: (n, 4).
        variances: (n, 4), by which offsets are divided; None: they are not.
        boxes: (n, 4); for CENTER_SIZE of some width and height.

    Returns:
        (n, 4).

    Raises:
        LayerError: a prior box has no area, and the code divides by its size.
    """
    offsets: np.ndarray = boxes - priors
    if code != CORNER:
        sizes = prior_sizes(priors)
        offsets = offsets / np.tile(sizes, 2)
        if code == CENTER_SIZE:
            shifts = (_centres(boxes) - _centres(priors)) / sizes
            offsets = np.concatenate([shifts, np.log((boxes[:, 2:] - boxes[:, :2]) / sizes)], axis=1)
    return offsets if variances is None else offsets / variances


def decode(code: int, priors: np.ndarray, variances: np.ndarray | None, offsets: np.ndarray) -> np.ndarray:
    """Boxes from their offsets: what ``encode`` undoes.

    Args:
        code: CORNER, CENTER_SIZE or CORNER_SIZE.
        priors: (P, 4).
        variances: (P, 4), by which offsets are multiplied; None: they are not.
        offsets: (..., P, 4).

    Returns:
        (..., P, 4). Nothing is clipped to the image.

    Raises:
        LayerError: as ``encode``.
    """
    if variances is not None:
        offsets = variances * offsets
    if code != CENTER_SIZE:
        sides = 1 if code == CORNER else np.tile(prior_sizes(priors), 2)
        boxes: np.ndarray = priors + offsets * sides
        return boxes
    sizes = prior_sizes(priors)
    centres = offsets[..., :2] * sizes + _centres(priors)
    with np.errstate(over="ignore"):  # of nets that are not trained
        halves = np.exp(offsets[..., 2:]) * sizes / 2
    return np.concatenate([centres - halves, centres + halves], axis=-1)


def prior_sizes(priors: np.ndarray) -> np.ndarray:
    """Width and height of prior boxes, (P, 2). Raises LayerError if one is not above 0."""
    sizes: np.ndarray = priors[:, 2:] - priors[:, :2]
    wrong = np.flatnonzero(~(sizes > 0).all(axis=1))
    if len(wrong):
        raise LayerError(f"wants prior boxes with an area, got {priors[wrong[0]].tolist()} as number {wrong[0]}")
    return sizes


def crosses_boundary(boxes: np.ndarray) -> np.ndarray:
    """For each box (n, 4), whether a corner lies outside the image."""
    outside: np.ndarray = np.logical_or.reduce((boxes < 0) | (boxes > 1), axis=1)
    return outside


def _centres(boxes: np.ndarray) -> np.ndarray:
    centres: np.ndarray = (boxes[:, :2] + boxes[:, 2:]) / 2
    return centres
