"""Single-rank placement: layers that lie whole on a replica's first rank, and redistributions to and from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.nets.net_layer import Portion
from scaffe.training.partition.layers.redistribution import Redistribution
from scaffe.training.partition.sharding import ONE, ROWS, WHOLE

FIRST = 0
FILLED = ("inner_product_param", "convolution_param", "local_convolution_param", "embed_param")
"""The options that have fillers of weights and bias."""


class Absent(Layer):
    """Stands for a layer on the ranks that do not have it: shapes are the layer's, memory is never touched.
    ``whole_shapes``: of the parameters, of which there is nothing here."""

    n_bottoms = n_tops = (1, None)

    def __init__(self, param: Any, context: Context) -> None:
        super().__init__(param, context)
        self._shaped_for: list[tuple[int, ...]] = []
        self.whole_shapes: list[tuple[int, ...]] = []

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare parameters without elements."""
        self._shape(bottom, len(top))
        for shape in self.whole_shapes:
            self.add_blob((0, *shape[1:]), None)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops as the layer does."""
        self._shape(bottom, len(top))
        for blob, shape in zip(top, self._tops, strict=True):
            blob.reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Nothing."""

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing."""

    def _shape(self, bottom: Sequence[Blob], n_tops: int) -> None:
        """Ask a layer of the type for the tops' shapes, once for each of the bottoms' shapes."""
        shapes = [blob.shape for blob in bottom]
        if shapes == self._shaped_for:
            return
        kind = layer_types.get(self.param.type).form(self.param, bottom)
        make = self.context.kernels.maker(kind, self.param, bottom, self.context.dtype)
        layer: Layer = make(self.param, self.context)
        tops = [self.context.blob() for _ in range(n_tops)]
        layer.setup(bottom, tops)
        layer.reshape(bottom, tops)
        self._shaped_for, self._tops = shapes, [blob.shape for blob in tops]
        self.whole_shapes = [blob.shape for blob in layer.blobs]


def single_rank_portions(layer: Any, made: Layer) -> list[tuple[Portion, Any]]:
    """The portion of each parameter that a rank has, with the filler of the whole."""
    is_here = not isinstance(made, Absent)
    shapes = made.whole_shapes if isinstance(made, Absent) else [blob.shape for blob in made.blobs]
    options = next((getattr(layer, field) for field in FILLED if layer.HasField(field)), None)
    fillers = (options.weight_filler, options.bias_filler) if options is not None else ()
    return [(single_rank_portion(shape, is_here), filler) for shape, filler in zip(shapes, fillers, strict=False)]


def single_rank_portion(shape: tuple[int, ...], is_here: bool) -> Portion:
    """All of a parameter, or nothing."""
    first_axis = slice(None) if is_here else slice(0, 0)
    return Portion(shape, (first_axis, *[slice(None)] * (len(shape) - 1)), on_single_rank=True)


class _SingleRankRedistribution(Redistribution):
    """The base of these redistributions: the first rank's blob has all images, that of others is never touched."""

    sends_early = False  # ranks without the layer cannot tell when

    @property
    def _is_first(self) -> bool:
        return self.group.rank == FIRST

    def _move(self, whole: Any, own: Any, gathers: bool) -> None:
        """Every rank's images to the first rank, or from it."""
        blocks = {rank: self.group.block(whole, rank) for rank in range(1, self.group.n_ranks) if self._is_first}
        mine = {} if self._is_first else {FIRST: own}
        self.group.exchange(*((mine, blocks) if gathers else (blocks, mine)))
        if self._is_first:
            to, of = (self.group.block(whole), own) if gathers else (own, self.group.block(whole))
            to[...] = of


class RowsToOne(_SingleRankRedistribution):
    """Every rank's images to the first rank: (b, ...) → (G, ...)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape((bottom[0].shape[0] * self.group.n_ranks, *bottom[0].shape[1:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._move(top[0].data_flat, bottom[0].data_flat, True)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            self._move(top[0].diff_flat, bottom[0].diff_flat, False)


class OneToRows(_SingleRankRedistribution):
    """Every rank's images from the first rank: (G, ...) → (b, ...)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape((bottom[0].shape[0] // self.group.n_ranks, *bottom[0].shape[1:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._move(bottom[0].data_flat, top[0].data_flat, False)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            self._move(bottom[0].diff_flat, top[0].diff_flat, True)


class OneToWhole(_SingleRankRedistribution):
    """All images from the first rank to all ranks: (G, ...) → (G, ...)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape(bottom[0].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._is_first:
            top[0].data_flat[...] = bottom[0].data_flat
        self.group.communicator.bcast(top[0].data_flat, FIRST)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Sum the partial gradients on the first rank."""
        if propagate_down[0]:
            self.group.communicator.reduce(top[0].diff_flat, FIRST)
            if self._is_first:
                bottom[0].diff_flat[...] = top[0].diff_flat


class WholeToOne(OneToWhole):
    """What every rank has, on the first rank alone. In tests, so without a gradient."""

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._is_first:
            top[0].data_flat[...] = bottom[0].data_flat

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing."""


SINGLE_RANK_REDISTRIBUTIONS: dict[tuple[str, str], Callable[..., Redistribution]] = {
    (ROWS, ONE): RowsToOne, (ONE, ROWS): OneToRows, (ONE, WHOLE): OneToWhole, (WHOLE, ONE): WholeToOne}
"""(how it lies, how it is needed) → what makes the layer between, as MOVES."""
