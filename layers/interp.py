"""Interp: bilinear resizing with aligned corners (DeepLab's and PSPNet's forks of Caffe)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Interp")
class Interp(Layer):
    """The bottom's images, cropped by -pad_beg and -pad_end, resized: by factors, to a size, or to bottom 1's size."""

    n_bottoms = (1, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Find the size. Raises LayerError for a size that is not given, or cannot be."""
        p, shape = self.param.interp_param, bottom[0].shape
        if len(shape) != 4 or p.pad_beg > 0 or p.pad_end > 0:
            raise LayerError(f"wants images and paddings of at most 0, got {shape}, {p.pad_beg} and {p.pad_end}")
        seen = [n + p.pad_beg + p.pad_end for n in shape[2:]]
        like = bottom[1].shape[2:] if len(bottom) > 1 else None
        wanted = [output_length(p, n, i, like) for i, n in enumerate(seen)]
        if min(*seen, *wanted) < 1:
            raise LayerError(f"cannot resize {tuple(seen)} to {tuple(wanted)}")
        top[0].reshape((*shape[:2], *wanted))
        dtype = self.context.param_dtype
        self.weights = [self.context.kernels.to_device(interpolation(n, -p.pad_beg, length, out, dtype))
                        for n, length, out in zip(shape[2:], seen, wanted, strict=True)]

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Bottom 1 only gives its size."""
        return bottom_index == 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Resize rows, then columns."""
        rows, columns = self.weights
        top[0].data[...] = rows @ self._wide(bottom[0].data) @ columns.T

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """The transpose; 0 for bottom 1."""
        rows, columns = self.weights
        if propagate_down[0]:
            bottom[0].diff[...] = rows.T @ self._wide(top[0].diff) @ columns
        if len(bottom) > 1 and propagate_down[1]:
            bottom[1].diff_flat[...] = 0

    def _wide(self, x: Any) -> Any:
        """CuPy multiplies no stacks of bfloat16."""
        return x.astype(self.context.param_dtype, copy=False)


def output_length(p: Any, n: int, index: int, like: Sequence[int] | None) -> int:
    """Length of spatial axis ``index`` (0: height) after an InterpParameter; LayerError where it says nothing."""
    if like is not None:
        return like[index]
    if p.HasField("shrink_factor") or p.HasField("zoom_factor"):
        if min(p.shrink_factor, p.zoom_factor) < 1:
            raise LayerError(f"factors are at least 1, got shrink {p.shrink_factor} and zoom {p.zoom_factor}")
        n = (n - 1) // int(p.shrink_factor) + 1
        return n + (n - 1) * (int(p.zoom_factor) - 1)
    if p.HasField("height") and p.HasField("width"):
        return int((p.height, p.width)[index])
    raise LayerError("wants a size: shrink_factor, zoom_factor, height and width, or a second bottom")


def interpolation(n: int, start: int, length: int, n_out: int, dtype: np.dtype) -> np.ndarray:
    """(n_out, n) weights that resize elements start..start+length-1 of n linearly, first and last to first and last."""
    places = np.arange(n_out) * ((length - 1) / (n_out - 1) if n_out > 1 else 0.0)
    below = np.minimum(places.astype(np.int64), length - 1)
    share = places - below
    weights = np.zeros((n_out, n), dtype)
    rows = np.arange(n_out)
    weights[rows, start + below] += 1 - share
    weights[rows, start + np.minimum(below + 1, length - 1)] += share
    return weights
