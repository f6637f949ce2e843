"""Layers that reorder elements: Permute (from SSD's fork of Caffe) and ShuffleChannel (from ShuffleNet's)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Permute")
class Permute(Layer):
    """Axis i of the top is axis ``order[i]`` of the bottom; axes not in ``order`` follow, in the bottom's order."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if ``order`` names an axis out of range, or one twice."""
        order = list(self.param.permute_param.order)
        n_axes = bottom[0].ndim
        if len(set(order)) != len(order) or any(a >= n_axes for a in order):
            raise LayerError(f"order {order} is not a choice of the {n_axes} axes of {bottom[0].shape}")
        self.order = (*order, *(a for a in range(n_axes) if a not in order))
        top[0].reshape([bottom[0].shape[a] for a in self.order])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy the elements in the new order of axes."""
        np.copyto(top[0].data, bottom[0].data.transpose(self.order))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Copy the gradient back in the bottom's order of axes."""
        if propagate_down[0]:
            np.copyto(bottom[0].diff.transpose(self.order), top[0].diff)


@layer_types.register("ShuffleChannel")
class ShuffleChannel(Layer):
    """Interleaves the channels of ``group`` groups: views them as (group, C / group) and transposes.

    Source: ShuffleNet (Zhang, Zhou, Lin and Sun 2018, section 3.1).
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape. Raises LayerError if ``group`` does not divide the channels."""
        group, shape = self.param.shuffle_channel_param.group, bottom[0].shape
        if len(shape) < 2 or group < 1 or shape[1] % group:
            raise LayerError(f"{group} groups do not divide the channels of {shape}")
        self.places = self.context.xp.arange(shape[1]).reshape(group, -1).T.ravel()
        top[0].reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy channel places[c] of the bottom to channel c of the top."""
        np.copyto(top[0].data, bottom[0].data[:, self.places])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Copy the gradient of the top's channel c to channel places[c] of the bottom."""
        if propagate_down[0]:
            bottom[0].diff[:, self.places] = top[0].diff
