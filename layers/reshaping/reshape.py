"""Reshape and Flatten: the same elements in another shape (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.base.layout import pass_data, pass_diff_back, share_diff

COPY, INFER = 0, -1  # reshape_param: dimension 0 copies the bottom's, -1 is inferred


class SameElements(Layer):
    """The base of layers that pass the bottom's elements on in another shape, in Caffe's order.

    The top shares the bottom's memory if both store their elements in the same order. A subclass shapes the top.
    """

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

    Raises:
        LayerError: an axis is out of range, ``axis`` lies behind ``end_axis``, or the layer works in place.
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
