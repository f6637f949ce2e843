"""Redistribution: layers that change a blob's layout on the ranks; backward brings its gradient back.

Gradients of cut blobs and of rows are the whole gradient of what a rank has. Of a blob that lies whole each rank has a
partial gradient, what its own part of the next layer adds, so that backward sums them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from scaffe.collectives.request import Request
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer
from scaffe.nets.net import Net
from scaffe.training.partition.group import Group, SharedMapping
from scaffe.training.partition.sharding import AXES, COLUMNS, ROWS, WHOLE


class Redistribution(Layer):
    """The base of all redistributions: the ranks, and how the blob is cut.

    Args:
        length: of the whole blob along the axis that is cut; 0 where the bottom says it.
        cut: a key of AXES.
    """

    sends_early = True  # whether the top's gradient may set out before ``backward``

    def __init__(self, param: Any, context: Context, group: Group, length: int = 0, cut: str = COLUMNS) -> None:
        super().__init__(param, context)
        self.group, self.length, self._cut = group, length, cut
        self._under_way: Request | None = None  # the top's gradient

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Bring the top's gradient back, unless it is on its way already."""
        if propagate_down[0]:
            request, self._under_way = self._under_way or self.start_back(top[0]), None
            self.group.wait(request, f"gradient {self.param.name}")
            self.take_back(bottom[0], top[0])

    def send_back(self, top: Blob) -> None:
        """Start to send the top's gradient, which is complete. Its writer may call this, and compute meanwhile."""
        if self.sends_early:
            self._under_way = self.start_back(top)

    def start_back(self, top: Blob) -> Request:
        raise NotImplementedError

    def take_back(self, bottom: Blob, top: Blob) -> None:
        raise NotImplementedError

    def whole_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a blob that is not cut, to be cut: (images, elements of an image) for columns."""
        return (shape[0], prod(shape[1:])) if self._cut == COLUMNS else shape

    def with_length(self, shape: tuple[int, ...], length: int) -> tuple[int, ...]:
        """A shape with another length of the axis that is cut."""
        axis = AXES[self._cut]
        return (*shape[:axis], length, *shape[axis + 1:])

    def place(self, rank: int | None = None) -> slice:
        """The part of the axis that a rank has; None: this one."""
        return self.group.columns(self.length, rank)

    @property
    def n_own(self) -> int:
        place = self.place()
        return int(place.stop - place.start)

    def front(self, array: np.ndarray) -> np.ndarray:
        """A view with the axis that is cut behind the images."""
        return np.moveaxis(array, AXES[self._cut], 1)

    def blocks_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of a block a rank of a blob, each as long as the longest: (ranks, images, places, the rest)."""
        n_ranks, axis = self.group.n_ranks, AXES[self._cut]
        return (n_ranks, shape[0], -(-self.length // n_ranks), *shape[1:axis], *shape[axis + 1:])

    def blocks(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(self.blocks_shape(shape), self.context.dtype)

    def split(self, whole: np.ndarray, blocks: np.ndarray) -> None:
        whole = self.front(whole)
        for rank, block in enumerate(blocks):
            place = self.place(rank)
            block[:, :place.stop - place.start] = whole[:, place]

    def join(self, blocks: np.ndarray, whole: np.ndarray) -> None:
        whole = self.front(whole)
        for rank, block in enumerate(blocks):
            place = self.place(rank)
            whole[:, place] = block[:, :place.stop - place.start]

    def put_rows(self, blocks: np.ndarray, cut: np.ndarray) -> None:
        front = self.front(cut)
        front.reshape(*blocks.shape[:2], *front.shape[1:])[...] = blocks[:, :, :front.shape[1]]

    def take_rows(self, cut: np.ndarray, blocks: np.ndarray) -> None:
        front = self.front(cut)
        blocks[:, :, :front.shape[1]] = front.reshape(*blocks.shape[:2], *front.shape[1:])


class RowsToWhole(Redistribution):
    """Every rank's images to all ranks: (b, ...) → (G, ...). ``is_awaited``: whether the reader calls ``arrive``, and
    computes before it what needs own images alone."""

    is_awaited = False
    _coming: Request | None = None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape((bottom[0].shape[0] * self.group.n_ranks, *bottom[0].shape[1:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.group.block(top[0].data_flat)[...] = bottom[0].data_flat
        if self.is_awaited:
            self._coming = self.group.igather(top[0].data_flat)
        else:
            self.group.gather(top[0].data_flat)

    def arrive(self) -> None:
        if self._coming is not None:
            self.group.wait(self._coming, f"gather {self.param.name}")
        self._coming = None

    def start_back(self, top: Blob) -> Request:
        return self.group.iscatter_sum(top.diff_flat)

    def take_back(self, bottom: Blob, top: Blob) -> None:
        bottom.diff_flat[...] = self.group.block(top.diff_flat)


class CutToWhole(Redistribution):
    """Every rank's part to all ranks: (G, own, ...) → (G, all, ...)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = self.with_length(bottom[0].shape, self.length)
        self._blocks = SharedMapping(self.group, self.blocks_shape(shape), self.context.dtype)
        top[0].reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._own()[...] = self.front(bottom[0].data)
        self.group.gather(self._blocks.array)
        self.join(self._blocks.array, top[0].data)

    def start_back(self, top: Blob) -> Request:
        self.split(top.diff, self._blocks.array)
        return self.group.iscatter_sum(self._blocks.array)

    def take_back(self, bottom: Blob, top: Blob) -> None:
        self.front(bottom.diff)[...] = self._own()

    def _own(self) -> np.ndarray:
        return self._blocks.array[self.group.rank, :, :self.n_own]


class RowsToCut(Redistribution):
    """All of own images for own part of all images: (b, ...) → (G, own, ...)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._shape = self.whole_shape(bottom[0].shape)
        self.length = self._shape[AXES[self._cut]]
        n_images, *rest = self.with_length(self._shape, self.n_own)
        top[0].reshape((n_images * self.group.n_ranks, *rest))
        self._sent, self._received = self.blocks(self._shape), self.blocks(self._shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.split(bottom[0].data.reshape(self._shape), self._sent)
        self.group.swap(self._sent, self._received)
        self.put_rows(self._received, top[0].data)

    def start_back(self, top: Blob) -> Request:
        self.take_rows(top.diff, self._sent)
        return self.group.iswap(self._sent, self._received)

    def take_back(self, bottom: Blob, top: Blob) -> None:
        gradient = np.empty(self._shape, self.context.dtype)
        self.join(self._received, gradient)
        bottom.diff[...] = gradient.reshape(bottom.shape)


class CutToRows(Redistribution):
    """Own part of all images for all of own images: (G, own, ...) → (b, all, ...)."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        n_images, *rest = self.with_length(bottom[0].shape, self.length)
        shape = (n_images // self.group.n_ranks, *rest)
        top[0].reshape(shape)
        self._sent, self._received = self.blocks(shape), self.blocks(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.take_rows(bottom[0].data, self._sent)
        self.group.swap(self._sent, self._received)
        self.join(self._received, top[0].data)

    def start_back(self, top: Blob) -> Request:
        self.split(top.diff, self._sent)
        return self.group.iswap(self._sent, self._received)

    def take_back(self, bottom: Blob, top: Blob) -> None:
        self.put_rows(self._received, bottom.diff)


class WholeToCut(Redistribution):
    """Own part of what every rank has: (G, ...) → (G, own, ...). In tests alone, so without a gradient."""

    sends_early = False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._shape = self.whole_shape(bottom[0].shape)
        self.length = self._shape[AXES[self._cut]]
        top[0].reshape(self.with_length(self._shape, self.n_own))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.front(top[0].data)[...] = self.front(bottom[0].data.reshape(self._shape))[:, self.place()]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing."""


REDISTRIBUTIONS: dict[tuple[str, str], Callable[..., Redistribution]] = {(ROWS, WHOLE): RowsToWhole} | {
    way: partial(move, cut=cut) for cut in AXES for way, move in (
        ((cut, WHOLE), CutToWhole), ((ROWS, cut), RowsToCut), ((cut, ROWS), CutToRows), ((WHOLE, cut), WholeToCut))}
"""(how it lies, how it is needed) → what makes the layer between."""


def send_back_early(net: Net) -> None:
    """Send each gradient back as soon as a layer has written it, while the layer computes its parameters' gradients."""
    makers: dict[int, Layer] = {}
    for node in net.nodes:
        made = makers.get(id(node.bottoms[0])) if node.bottoms else None
        if isinstance(made, Redistribution):
            node.layer.bottoms_written = partial(made.send_back, node.bottoms[0])
        makers.update((id(top), node.layer) for top in node.tops)
