"""Flatten: merges several neighbouring axes into one (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_axis
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.base.layout import pass_data, pass_diff_back, share_diff


@layer_types.register("Flatten")
class Flatten(Layer):
    """Merges the axes from ``axis`` to ``end_axis``, both included (default: 1 and the last), in Caffe's order.

    Raises:
        LayerError: an axis is out of range, ``axis`` lies behind ``end_axis``, or the layer works in place.
    """

    recordable = repeatable = True
    reads_bottoms = reads_tops = False
    shares_data = shares_diff = idle_in_place = True

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        """See Layer."""
        return True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top; it shares the bottom's memory if both store their elements in the same order."""
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")
        p, shape = self.param.flatten_param, bottom[0].shape
        first, last = check_axis(bottom[0], p.axis), check_axis(bottom[0], p.end_axis)
        if last + 1 < first:  # an empty run becomes an axis of 1, as in Caffe
            raise LayerError(f"axis {p.axis} lies behind end_axis {p.end_axis} in shape {shape}")
        top[0].reshape((*shape[:first], bottom[0].count(first, last + 1), *shape[last + 1:]))
        self.shares_data = self.shares_diff = share_diff(bottom[0], top[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Pass the elements on in the new shape."""
        pass_data(bottom[0], top[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Pass the gradient back in the bottom's shape."""
        if propagate_down[0] and not self.shares_diff:
            pass_diff_back(top[0], bottom[0])
