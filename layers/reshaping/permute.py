"""Layers that reorder elements.

Permute is from SSD's fork of Caffe, Transpose from CTPN's and caffe_ocr's, ShuffleChannel from ShuffleNet's, Flip from
happynear's, Reverse from caffe_ocr's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


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
