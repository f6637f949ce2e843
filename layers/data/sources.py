"""Layers that only begin or end a net (Caffe 1.0).

Input, DummyData and Parameter have tops only, and read no files; Silence has bottoms only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.errors import LayerError
from scaffe.layers.base.axes import pass_data
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import Layer, layer_types


class _Idle(Layer):
    """The base of layers whose reshape and forward do nothing."""

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        """See Layer."""
        return True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Do nothing: there are no tops, or setup has shaped them."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Do nothing."""


class Source(_Idle):
    """The base of Input and DummyData: no bottoms. Setup shapes the tops; later the caller may."""

    n_bottoms = (0, 0)
    n_tops = (1, None)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Do nothing."""


@layer_types.register("Input")
class Input(Source):
    """Tops that the caller fills with data, of the shapes in input_param."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops. Raises LayerError unless there are no shapes, one, or one for each top."""
        shapes = [tuple(s.dim) for s in self.param.input_param.shape]
        if shapes:
            for i, blob in enumerate(top):
                blob.reshape(one_a_top(shapes, i, len(top), "shape"))


@layer_types.register("DummyData")
class DummyData(Source):
    """Tops filled by fillers: a constant filler fills once, in setup, a random one at every forward."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops, fill the constant ones. Raises LayerError unless shapes and fillers are 1 or one per top."""
        p = self.param.dummy_data_param
        n_tops = len(top)
        self.fillers = [one_a_top(p.data_filler, i, n_tops, "data_filler") if p.data_filler else None
                        for i in range(n_tops)]
        self.filled_tops = [i for i in range(n_tops) if not self._is_constant(i)]
        for i, blob in enumerate(top):
            blob.reshape(self._shape(i, n_tops))
            if self._is_constant(i):
                blob.data[...] = 0
                if self.fillers[i] is not None:
                    self.fill(blob, self.fillers[i])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Fill the random tops again."""
        for i in self.filled_tops:
            self.fill(top[i], self.fillers[i])

    def _is_constant(self, i: int) -> bool:
        filler = self.fillers[i]
        return filler is None or filler.type == "constant"

    def _shape(self, i: int, n_tops: int) -> Shape:
        p = self.param.dummy_data_param
        legacy = {"num": p.num, "channels": p.channels, "height": p.height, "width": p.width}
        if not any(len(dims) for dims in legacy.values()):
            return tuple(one_a_top(p.shape, i, n_tops, "shape").dim)
        if p.shape:
            raise LayerError("give shape or num/channels/height/width, not both")
        return tuple(one_a_top(dims, i, n_tops, name) for name, dims in legacy.items())


def one_a_top(values: Sequence[Any], i: int, n_tops: int, name: str) -> Any:
    """The value for top i of a repeated field that is given once for all tops, or once for each.

    Args:
        values: the field's values.
        i: index of the top.
        n_tops: number of tops.
        name: the field's name, for the error.

    Raises:
        LayerError: there are neither 1 nor n_tops values.
    """
    if len(values) not in (1, n_tops):
        raise LayerError(f"{name} is to be given once, or once per top ({n_tops}); got {len(values)}")
    return values[0] if len(values) == 1 else values[i]


@layer_types.register("Parameter")
class Parameter(Layer):
    """A learnable blob, shown as the top. It has the shape in parameter_param and is zero at first."""

    n_bottoms = (0, 0)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the blob."""
        self.add_blob(tuple(self.param.parameter_param.shape.dim), None)
        top[0].reshape(self.blobs[0].shape)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Do nothing: setup has given the top the blob's shape."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Pass the parameter to the top, which shares its memory if both store their elements in the same order."""
        pass_data(self.blobs[0], top[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add the top's gradient to the parameter's."""
        if self.param_propagate_down[0]:
            self.blobs[0].diff[...] += top[0].diff


@layer_types.register("Silence")
class Silence(_Idle):
    """Consumes bottoms that no other layer uses, so that they are not outputs of the net; their gradient is 0."""

    n_bottoms = (1, None)
    n_tops = (0, 0)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write zeros to the gradients asked for."""
        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                blob.diff_flat[...] = 0
