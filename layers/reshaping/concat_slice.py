"""Concat and Slice: blobs joined along an axis, and cut (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


class _Parts(Layer):
    """The base of both: a whole blob, and its parts along an axis; a single part shares its memory."""

    recordable = has_half_kernels = True
    _older: ClassVar[str]  # name of the option ``axis``
    _options: Any  # the layer's own message, set by setup

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._options = getattr(self.param, f"{self.param.type.lower()}_param")
        if self._options.HasField("axis") and self._options.HasField(self._older):
            raise LayerError(f"give axis or {self._older}, not both")
        self.shares_data = self.shares_diff = len(bottom) == len(top) == 1

    def _axis(self, bottom: Blob) -> int:
        p = self._options
        return check_axis(bottom, getattr(p, self._older) if p.HasField(self._older) else p.axis)

    def _cut(self, axis: int, cuts: Sequence[int]) -> None:
        self._parts = [(*[slice(None)] * axis, slice(*part)) for part in pairwise(cuts)]

    def _share(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self.shares_data and bottom[0] is not top[0]:
            top[0].share_data(bottom[0])
            top[0].share_diff(bottom[0])


@layer_types.register("Concat")
class Concat(_Parts):
    """The bottoms joined along ``axis`` (default 1; ``concat_dim`` is its older name).

    With a single bottom, the top shares its memory. Raises LayerError if the bottoms' shapes differ along another axis,
    or both axis and concat_dim are given.
    """

    repeatable = True
    reads_bottoms = reads_tops = False
    n_bottoms = (1, None)
    _older = "concat_dim"

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        axis = self._axis(bottom[0])
        self.by_image, shapes = axis > 0, [blob.shape for blob in bottom]
        if len({(len(s), *s[:axis], *s[axis + 1:]) for s in shapes}) > 1:
            raise LayerError(f"bottoms must have one shape but for axis {axis}, got {', '.join(map(str, shapes))}")
        ends = list(accumulate(s[axis] for s in shapes))
        top[0].reshape((*shapes[0][:axis], ends[-1], *shapes[0][axis + 1:]))
        self._cut(axis, [0, *ends])
        self._share(bottom, top)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._share(bottom, top)
        if not self.shares_data:
            y = top[0].data
            for blob, part in zip(bottom, self._parts, strict=True):
                self.context.kernels.copy_part(y[part], blob.data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not self.shares_data:
            gy = top[0].diff
            for blob, part, wanted in zip(bottom, self._parts, propagate_down, strict=True):
                if wanted:
                    self.context.kernels.copy_part(blob.diff, gy[part])


@layer_types.register("Slice")
class Slice(_Parts):
    """Cuts the bottom along ``axis`` into one part for each top (default axis: 1; ``slice_dim`` is its older name).

    The parts are equal, or the second and each later one begin at the positions ``slice_point``. A single top shares
    the bottom's memory.
    """

    n_tops = (1, None)
    _older = "slice_dim"

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        axis, shape = self._axis(bottom[0]), bottom[0].shape
        cuts = cut_points(shape[axis], len(top), list(self._options.slice_point))
        self._cut(axis, cuts)
        for blob, (a, b) in zip(top, pairwise(cuts), strict=True):
            blob.reshape((*shape[:axis], b - a, *shape[axis + 1:]))
        self._share(bottom, top)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._share(bottom, top)
        if not self.shares_data:
            for blob, part in zip(top, self._parts, strict=True):
                self.context.kernels.copy_part(blob.data, bottom[0].data[part])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0] and not self.shares_data:
            for blob, part in zip(top, self._parts, strict=True):
                self.context.kernels.copy_part(bottom[0].diff[part], blob.diff)


def cut_points(length: int, n_parts: int, points: Sequence[int]) -> list[int]:
    """Where the parts of an axis begin and end: n_parts + 1 rising positions from 0 to ``length``. The later parts
    begin at ``points``; without points all are equal. Raises LayerError unless there are n_parts - 1 rising points
    inside the axis, or n_parts divides the length."""
    if points:
        cuts = [0, *points, length]
        if len(points) != n_parts - 1 or any(a >= b for a, b in pairwise(cuts)):
            raise LayerError(f"wants {n_parts - 1} rising slice points inside an axis of {length}, got {list(points)}")
        return cuts
    if length % n_parts or not length:
        raise LayerError(f"{n_parts} tops do not evenly divide an axis of {length}")
    return list(range(0, length + 1, length // n_parts))
