"""WindowData's cutting of one window, written in C's order of operations with plain loops over the result."""

import math

import cv2
import numpy as np

F = np.float32


def c_round(x):
    """C's round()."""
    return math.floor(x + 0.5) if x >= 0 else math.ceil(x - 0.5)


def cut(image, box, side, pad, square, mirrored):
    """Image (H, W, C) uint8; gives (side, side, C) float32 pixels and the mask of those that come from the image."""
    x1, y1, x2, y2 = box
    width = height = side
    pad_w = pad_h = 0
    if pad > 0 or square:
        scale = F(side) / F(side - 2 * pad)
        half_h, half_w = F((y2 - y1 + 1) / 2.0), F((x2 - x1 + 1) / 2.0)
        cx, cy = F(x1) + half_w, F(y1) + half_h
        if square:
            half_w = half_h = half_h if half_h > half_w else half_w
        x1, x2 = c_round(float(cx - half_w * scale)), c_round(float(cx + half_w * scale))
        y1, y2 = c_round(float(cy - half_h * scale)), c_round(float(cy + half_h * scale))
        full_h, full_w = y2 - y1 + 1, x2 - x1 + 1
        px1, py1 = max(0, -x1), max(0, -y1)
        px2, py2 = max(0, x2 - image.shape[1] + 1), max(0, y2 - image.shape[0] + 1)
        x1, x2, y1, y2 = x1 + px1, x2 - px2, y1 + py1, y2 - py2
        sx, sy = F(side) / F(full_w), F(side) / F(full_h)
        width, height = c_round(float(F(x2 - x1 + 1) * sx)), c_round(float(F(y2 - y1 + 1) * sy))
        pad_h = c_round(float(F(py1) * sy))
        pad_w = c_round(float(F(px2 if mirrored else px1) * sx))
        height = side - pad_h if pad_h + height > side else height
        width = side - pad_w if pad_w + width > side else width
    part = cv2.resize(np.ascontiguousarray(image[y1:y2 + 1, x1:x2 + 1]), (width, height))
    out, mask = np.zeros((side, side, image.shape[2]), np.float32), np.zeros((side, side), bool)
    for h in range(height):
        for w in range(width):
            out[h + pad_h, w + pad_w] = part[h, width - 1 - w if mirrored else w]
            mask[h + pad_h, w + pad_w] = True
    return out, mask
