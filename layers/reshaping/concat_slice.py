"""Concat and Slice: blobs joined along an axis, and cut (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Concat")
class Concat(Layer):
    """The bottoms joined along ``axis`` (default 1; ``concat_dim`` is its older name).

    With a single bottom, the top shares its memory.

    Raises:
        LayerError: the bottoms' shapes differ along another axis, or both axis and concat_dim are given.
    """

    recordable = repeatable = True
    reads_bottoms = reads_tops = False
    n_bottoms = (1, None)
    has_half_kernels = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.concat_param
        if p.HasField("axis") and p.HasField("concat_dim"):
            raise LayerError("give axis or concat_dim, not both")
        self.shares_data = self.shares_diff = len(bottom) == 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.concat_param
        axis = check_axis(bottom[0], p.concat_dim if p.HasField("concat_dim") else p.axis)
        self.by_image, shapes = axis > 0, [blob.shape for blob in bottom]
        if len({(len(s), *s[:axis], *s[axis + 1:]) for s in shapes}) > 1:
            raise LayerError(f"bottoms must have one shape but for axis {axis}, got {', '.join(map(str, shapes))}")
        ends = list(accumulate(s[axis] for s in shapes))
        top[0].reshape((*shapes[0][:axis], ends[-1], *shapes[0][axis + 1:]))
        self._parts = [(*[slice(None)] * axis, slice(*part)) for part in pairwise([0, *ends])]
        self._pass_on(bottom, top)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._pass_on(bottom, top)
        if len(bottom) > 1:
            y = top[0].data
            for blob, part in zip(bottom, self._parts, strict=True):
                self.context.kernels.copy_part(y[part], blob.data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if len(bottom) > 1:
            gy = top[0].diff
            for blob, part, wanted in zip(bottom, self._parts, propagate_down, strict=True):
                if wanted:
                    self.context.kernels.copy_part(blob.diff, gy[part])

    @staticmethod
    def _pass_on(bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(bottom) == 1 and bottom[0] is not top[0]:
            top[0].share_data(bottom[0])
            top[0].share_diff(bottom[0])


@layer_types.register("Slice")
class Slice(Layer):
    """Cuts the bottom along ``axis`` into one part for each top (default axis: 1; ``slice_dim`` is its older name).

    The parts are equal, or the second and each later one begin at the positions ``slice_point``. A single top shares
    the bottom's memory.
    """

    recordable = True
    n_tops = (1, None)
    has_half_kernels = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.slice_param
        if p.HasField("axis") and p.HasField("slice_dim"):
            raise LayerError("give axis or slice_dim, not both")
        self.shares_data = self.shares_diff = len(top) == 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.slice_param
        self.axis = check_axis(bottom[0], p.slice_dim if p.HasField("slice_dim") else p.axis)
        shape = bottom[0].shape
        points = cut_points(shape[self.axis], len(top), list(p.slice_point))
        ahead = (slice(None),) * self.axis
        self.parts = [(*ahead, slice(a, b)) for a, b in pairwise(points)]
        for blob, (a, b) in zip(top, pairwise(points), strict=True):
            blob.reshape((*shape[: self.axis], b - a, *shape[self.axis + 1 :]))
        self._share(bottom, top)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._share(bottom, top)
        if len(top) > 1:
            for blob, part in zip(top, self.parts, strict=True):
                self.context.kernels.copy_part(blob.data, bottom[0].data[part])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0] and len(top) > 1:
            for blob, part in zip(top, self.parts, strict=True):
                self.context.kernels.copy_part(bottom[0].diff[part], blob.diff)

    @staticmethod
    def _share(bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(top) == 1:
            top[0].share_data(bottom[0])
            top[0].share_diff(bottom[0])


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
