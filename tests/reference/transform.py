"""Caffe's transformation of one image, pixel by pixel, as its DataTransformer defines it."""

import numpy as np


def transform_one(image, scale=1.0, mean=None, window=None, mirrored=False):
    """Image (C, H, W); mean broadcasts against it; window is (top, left, side); gives float32 (C, side, side)."""
    channels, height, width = image.shape
    top, left, side = window or (0, 0, None)
    rows, columns = (side, side) if side else (height, width)
    means = np.zeros(image.shape, np.float32) if mean is None else np.broadcast_to(mean, image.shape)
    out = np.empty((channels, rows, columns), np.float32)
    for c in range(channels):
        for h in range(rows):
            for w in range(columns):
                to = columns - 1 - w if mirrored else w
                pixel = np.float32(image[c, top + h, left + w]) - np.float32(means[c, top + h, left + w])
                out[c, h, to] = pixel * np.float32(scale)
    return out
