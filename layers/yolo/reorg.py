"""Reorg: blocks of pixels into channels, or back (YOLOv2; MobileNet-YOLO's fork, reorg_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types

TO_SPLIT = (0, 3, 5, 1, 2, 4)  # (N, C, H, row, W, column) -> (N, row, column, C, H, W)
TO_JOIN = (0, 3, 4, 1, 5, 2)  # and back


@layer_types.register("Reorg")
class Reorg(Layer):
    """Moves elements between pixels and channels, in darknet's order.

    With s = stride and D = C / s^2: the bottom's elements in Caffe's order are read as (N, D, s H, s W), and the pixels
    at each place in the s x s blocks become D channels, the places in row order: (N, s^2 D, H, W). These in their order
    are the top. (Of an image that is really (D, s H, s W) this would be the usual rearrangement; darknet applies it to
    C channels of H x W.) ``reverse`` undoes blocks: (N, s^2 D, H, W) becomes (N, D, s H, s W).

    Bottom: (N, C, H, W). Top: (N, s^2 C, H / s, W / s), or with ``reverse`` (N, C / s^2, s H, s W).
    """

    temporaries = 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.reorg_param
        if not p.HasField("stride") or p.stride < 1:
            raise LayerError(f"needs a stride of at least 1, got {p.stride}")
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, shape = self.param.reorg_param, bottom[0].shape
        s = p.stride
        if len(shape) != 4 or shape[1] % s**2 or (not p.reverse and (shape[2] % s or shape[3] % s)):
            raise LayerError(f"stride {s} does not divide a bottom {shape}: channels by its square, "
                             "and without reverse height and width")
        n, c, h, w = shape
        self._joined = (n, c // s**2, h, s, w, s)
        self._split = (n, s, s, c // s**2, h, w)
        top[0].reshape((n, c // s**2, h * s, w * s) if p.reverse else (n, c * s**2, h // s, w // s))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = self._moved(bottom[0].data, self.param.reorg_param.reverse).reshape(top[0].shape)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Move the gradients back. (The fork's own backward reads a blob of zeros instead of the top's diff.)"""
        if propagate_down[0]:
            gy = self._moved(top[0].diff, not self.param.reorg_param.reverse)
            bottom[0].diff[...] = gy.reshape(bottom[0].shape)

    def _moved(self, x: Any, joins: bool) -> Any:
        return (x.reshape(self._split).transpose(TO_JOIN) if joins else x.reshape(self._joined).transpose(TO_SPLIT))
