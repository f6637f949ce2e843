"""An image and its labels, transformed pixel by pixel (hszhao/PSPNet, TransformImgAndSeg; caffe-segnet, after it)."""

from __future__ import annotations

import numpy as np


def pair(image: np.ndarray, labels: np.ndarray, crop: tuple[int, int], offsets: tuple[int, int], mirrored: bool,
         mean: list[float], scale: float, ignored: int) -> tuple[np.ndarray, np.ndarray]:
    """The crop of a pair that is padded at the bottom and right with the mean and ``ignored``.

    Args:
        image: (height, width, channels).
        labels: (height, width).
        crop: height and width.
        offsets: the crop's first row and column.
        mirrored: whether left and right change places.
        mean: a number a channel.
        scale: factor.
        ignored: label of the padding.
    """
    height, width = crop
    pixels, marks = np.zeros((height, width, image.shape[2])), np.zeros((height, width))
    for h in range(height):
        for w in range(width):
            row, column = offsets[0] + h, offsets[1] + w
            at = width - 1 - w if mirrored else w
            inside = row < image.shape[0] and column < image.shape[1]
            marks[h, at] = labels[row, column] if inside else ignored
            for c in range(image.shape[2]):
                pixels[h, at, c] = ((float(image[row, column, c]) if inside else mean[c]) - mean[c]) * scale
    return pixels, marks
