"""Layers without bottoms and without data files: Input, DummyData, Parameter; and Silence, without tops (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.base.layout import pass_data


class Source(Layer):
    """No bottoms; tops are shaped once, in setup, and then by whoever feeds them."""

    n_bottoms = (0, 0)
    n_tops = (1, None)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Nothing: setup has done it."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Nothing."""

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing."""


@layer_types.register("Input")
class Input(Source):
    """Tops that the caller fills."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops. Raises LayerError for a number of shapes that is not 0, 1 or one a top."""
        shapes = [tuple(s.dim) for s in self.param.input_param.shape]
        if shapes:
            for i, blob in enumerate(top):
                blob.reshape(one_a_top(shapes, i, len(top), "shape"))


@layer_types.register("DummyData")
class DummyData(Source):
    """Tops from fillers: constants are filled once, random ones before every forward."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops, fill the constant ones. Raises LayerError where shapes or fillers are not 1 or one a top."""
        p = self.param.dummy_data_param
        n_tops = len(top)
        self.fillers = [one_a_top(p.data_filler, i, n_tops, "data_filler") if p.data_filler else None
                        for i in range(n_tops)]
        for i, blob in enumerate(top):
            blob.reshape(self._shape(i, n_tops))
            if self._is_constant(i):
                blob.data[...] = 0
                if self.fillers[i] is not None:
                    self.fill(blob, self.fillers[i])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Fill the random tops anew."""
        for i, blob in enumerate(top):
            if not self._is_constant(i):
                self.fill(blob, self.fillers[i])

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
    """Value i of a repeated field that is given once for all tops or once per top; LayerError if neither."""
    if len(values) not in (1, n_tops):
        raise LayerError(f"{name} is to be given once, or once per top ({n_tops}); got {len(values)}")
    return values[0] if len(values) == 1 else values[i]


@layer_types.register("Parameter")
class Parameter(Layer):
    """A learnable blob as a top: zeros at first, learnt by its gradient."""

    n_bottoms = (0, 0)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the blob."""
        self.add_blob(tuple(self.param.parameter_param.shape.dim), None)
        top[0].reshape(self.blobs[0].shape)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Nothing: the shape is the blob's."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Show the parameter; by sharing its memory where storage orders agree."""
        pass_data(self.blobs[0], top[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add the top's diff to the parameter's."""
        if self.param_propagate_down[0]:
            self.blobs[0].diff[...] += top[0].diff


@layer_types.register("Silence")
class Silence(Layer):
    """Takes bottoms that nobody wants; gives them a zero gradient."""

    n_bottoms = (1, None)
    n_tops = (0, 0)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Nothing to shape."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Nothing."""

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Zero the diffs asked for."""
        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                blob.diff_flat[...] = 0
