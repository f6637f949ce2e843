"""The same elements in another shape (Reshape and Flatten, Caffe 1.0) or order.

Permute is from SSD's fork of Caffe, Transpose from CTPN's and caffe_ocr's, ShuffleChannel from ShuffleNet's, Flip from
happynear's, Reverse from caffe_ocr's, Reorg from darknet (MobileNet-YOLO's fork)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis, pass_data, pass_diff_back, share_diff
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import Layer, layer_types

COPY, INFER = 0, -1  # reshape_param: dimension 0 copies the bottom's, -1 is inferred


class SameElements(Layer):
    """The base of layers that pass the bottom's elements on in another shape, in Caffe's order; the top shares the
    bottom's memory if both store their elements in the same order. A subclass shapes the top."""

    recordable = repeatable = True
    reads_bottoms = reads_tops = False
    shares_data = shares_diff = idle_in_place = True
    has_half_kernels = True

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        pass_data(bottom[0], top[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0] and not self.shares_diff:
            pass_diff_back(top[0], bottom[0])


@layer_types.register("Reshape")
class Reshape(SameElements):
    """The bottom's elements in the shape that reshape_param gives, in Caffe's order."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0] is top[0]:
            raise LayerError("does not work in place; give the top another name")
        self.dims = tuple(self.param.reshape_param.shape.dim)
        if self.dims.count(INFER) > 1:
            raise LayerError(f"shape {self.dims} has more than one -1")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.reshape_param
        top[0].reshape(reshaped(bottom[0].shape, self.dims, p.axis, p.num_axes))
        pass_data(bottom[0], top[0])
        self.shares_data = self.shares_diff = share_diff(bottom[0], top[0])


def reshaped(shape: Shape, dims: Shape, axis: int = 0, num_axes: int = -1) -> Shape:
    """The shape of a blob after a Reshape layer: ``num_axes`` axes from ``axis`` on (-1: all) are replaced by ``dims``,
    where 0 copies the bottom's length at this place and one -1 is inferred from the rest. A negative ``axis`` counts
    from the end, where -1 is behind the last axis. Raises LayerError if axes are out of range, a 0 has nothing to copy,
    or the numbers of elements cannot agree."""
    start = axis if axis >= 0 else len(shape) + axis + 1
    end = len(shape) if num_axes == -1 else start + num_axes
    if num_axes < -1 or not 0 <= start <= end <= len(shape):
        raise LayerError(f"axis {axis} with num_axes {num_axes} is out of range for a bottom of shape {shape}")
    new = list(dims)
    for i, dim in enumerate(dims):
        if dim == COPY:
            if start + i >= len(shape):
                raise LayerError(f"shape {dims} has a 0 at axis {start + i}, but the bottom's shape is {shape}")
            new[i] = shape[start + i]
    kept = prod(shape[:start]) * prod(shape[end:])
    if INFER in new:
        rest = kept * prod(d for d in new if d != INFER)
        if rest == 0 or prod(shape) % rest:
            raise LayerError(f"cannot infer -1 in {dims}: {prod(shape)} elements do not divide by {rest}")
        new[new.index(INFER)] = prod(shape) // rest
    result = (*shape[:start], *new, *shape[end:])
    if prod(result) != prod(shape):
        raise LayerError(f"shape {result} has {prod(result)} elements, the bottom {shape} has {prod(shape)}")
    return result


@layer_types.register("Flatten")
class Flatten(SameElements):
    """Merges the axes from ``axis`` to ``end_axis``, both included (default: 1 and the last), in Caffe's order.

    Raises LayerError if an axis is out of range, ``axis`` lies behind ``end_axis``, or the layer works in place.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")
        p, shape = self.param.flatten_param, bottom[0].shape
        first, last = check_axis(bottom[0], p.axis), check_axis(bottom[0], p.end_axis)
        if last + 1 < first:  # an empty run becomes an axis of 1, as in Caffe
            raise LayerError(f"axis {p.axis} lies behind end_axis {p.end_axis} in shape {shape}")
        top[0].reshape((*shape[:first], bottom[0].count(first, last + 1), *shape[last + 1:]))
        self.shares_data = self.shares_diff = share_diff(bottom[0], top[0])


@layer_types.register("Permute")
class Permute(Layer):
    """Axis i of the top is axis ``order[i]`` of the bottom; axes not in ``order`` follow, in the bottom's order."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        order, n_axes = self._wanted(bottom[0].ndim), bottom[0].ndim
        if len(set(order)) != len(order) or any(not 0 <= a < n_axes for a in order):
            raise LayerError(f"order {order} is not a choice of the {n_axes} axes of {bottom[0].shape}")
        self.order = (*order, *(a for a in range(n_axes) if a not in order))
        top[0].reshape([bottom[0].shape[a] for a in self.order])

    def _wanted(self, n_axes: int) -> list[int]:
        """The order of axes that the options give."""
        return list(self.param.permute_param.order)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.copyto(top[0].data, bottom[0].data.transpose(self.order))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            np.copyto(bottom[0].diff.transpose(self.order), top[0].diff)


@layer_types.register("Transpose")
class Transpose(Permute):
    """Axis i of the top is axis ``dim[i]`` of the bottom (caffe_ocr, transpose_layer.cpp)."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")

    def _wanted(self, n_axes: int) -> list[int]:
        """All of ``dim``. Raises LayerError unless it has a number for each axis."""
        dims = list(self.param.transpose_param.dim)
        if len(dims) != n_axes:
            raise LayerError(f"wants a dim for each of {n_axes} axes, got {dims}")
        return dims


class _Reversal(Layer):
    """The base of layers that reverse some axes."""

    _places: tuple[slice, ...]  # set by reshape: indexes every axis

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.copyto(top[0].data, bottom[0].data[self._places])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            np.copyto(bottom[0].diff, top[0].diff[self._places])

    def _reverse(self, bottom: Sequence[Blob], top: Sequence[Blob], axes: set[int]) -> None:
        """Shape the top and remember the axes. Raises LayerError in place."""
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")
        top[0].reshape(bottom[0].shape)
        self._places = tuple(slice(None, None, -1 if axis in axes else 1) for axis in range(bottom[0].ndim))


@layer_types.register("Reverse")
class Reverse(_Reversal):
    """Reverses one axis: element i of ``axis`` is element n - 1 - i of the bottom (caffe_ocr)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        axis = self.param.reverse_param.axis
        if not 0 <= axis < bottom[0].ndim:
            raise LayerError(f"axis {axis} is not one of the axes of {bottom[0].shape}, counted from 0")
        self._reverse(bottom, top, {axis})


@layer_types.register("Flip")
class Flip(_Reversal):
    """Mirrors images: left to right with flip_width, top to bottom with flip_height (happynear, flip_layer.cpp)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.flip_param
        if bottom[0].ndim != 4:
            raise LayerError(f"takes images (N, C, H, W), got shape {bottom[0].shape}")
        self._reverse(bottom, top, {axis for axis, flips in ((2, p.flip_height), (3, p.flip_width)) if flips})


@layer_types.register("ShuffleChannel")
class ShuffleChannel(Layer):
    """Interleaves the channels of ``group`` groups: views them as (group, C / group) and transposes.

    Source: ShuffleNet (Zhang, Zhou, Lin and Sun 2018, section 3.1).
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        group, shape = self.param.shuffle_channel_param.group, bottom[0].shape
        if len(shape) < 2 or group < 1 or shape[1] % group:
            raise LayerError(f"{group} groups do not divide the channels of {shape}")
        length = shape[1] // group
        self._places = [(slice(i * length, (i + 1) * length), slice(i, None, group)) for i in range(group)]
        top[0].reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy channel i of group g to channel i · groups + g of the top."""
        for channels, spread in self._places:
            np.copyto(top[0].data[:, spread], bottom[0].data[:, channels])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            for channels, spread in self._places:
                np.copyto(bottom[0].diff[:, channels], top[0].diff[:, spread])


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
