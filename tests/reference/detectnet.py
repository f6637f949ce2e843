"""What a DetectNet's cell says of one box (NVIDIA/caffe, CoverageGenerator), cell by cell."""

from __future__ import annotations

import numpy as np


def planes(boxes: list[tuple], stride: int, size: tuple[int, int], scale: float, least: float | None,
           most: float | None, crops: bool, norm: bool, classes: dict[int, int]) -> np.ndarray:
    """(8 + classes, rows, columns) of boxes (x, y, width, height, class); size is width and height of the image."""
    out = np.zeros((8 + max(classes.values()) + 1, size[1] // stride, size[0] // stride))
    for x, y, w, h, label in boxes:
        if crops:
            right, bottom = min(x + w, size[0]), min(y + h, size[1])
            x, y = max(x, 0), max(y, 0)
            w, h = right - x, bottom - y
        if label not in classes or w <= 0 or h <= 0:
            continue
        cw, ch = w * scale, h * scale
        cw, ch = (min(most, cw), min(most, ch)) if most else (min(w, max(least, cw)), min(h, max(least, ch)))
        left, top = x + w / 2 - cw / 2, y + h / 2 - ch / 2
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                gx, gy = i * stride, j * stride
                common_x = min(left + cw, gx + stride) - max(left, gx)
                common_y = min(top + ch, gy + stride) - max(top, gy)
                if common_x <= 0 or common_y <= 0 or common_x * common_y / stride**2 <= np.finfo(np.float32).eps:
                    continue
                cell = [1, x - gx, y - gy, x + w - gx, y + h - gy, 1 / w, 1 / h,
                        max(0 if norm else 1, stride**2 / (cw * ch))]
                cell += [float(c == classes[label]) for c in range(len(out) - 8)]
                out[:, j, i] = cell
    return out
