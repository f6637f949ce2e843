"""Blobs for several layers or repeated along an axis (Split, Tile), and items of a batch selected by the values of
another blob (BatchReindex, Filter; Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis, check_n_axes
from scaffe.layers.base.bases import refuse_gradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Split")
class Split(Layer):
    """Each top shares the bottom's data; the bottom's gradient is the sum of the tops'.

    The sum's pass can include the backward of an in-place ReLU of slope 0 before this layer.

    Attributes:
        includes_relu: whether it does. The bottom's gradient is then 0 where its data are not above 0.
        is_summed: whether the backward of a layer that reads a top has written the bottom's gradient.
    """

    includes_relu = is_summed = False

    by_image = recordable = repeatable = True
    reads_bottoms = reads_tops = False
    n_tops = (1, None)
    shares_data = idle_in_place = adds_in_place = True
    has_half_kernels = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob in top:
            if blob is bottom[0]:
                raise LayerError("cannot work in place")
            blob.reshape(bottom[0].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob in top:
            blob.share_data(bottom[0])

    def include_relu(self, own_diffs: bool) -> bool:
        self.includes_relu = self.reads_bottoms = len(self.param.top) > 1
        return self.includes_relu

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0] or self.is_summed:
            return
        out = bottom[0].diff_flat
        if len(top) == 1:
            out[...] = top[0].diff_flat
            return
        signs = bottom[0].data_flat if self.includes_relu else None
        self.context.kernels.add_up([blob.diff_flat for blob in top], out, signs)


@layer_types.register("Tile")
class Tile(Layer):
    """``tiles`` copies of the bottom one after another along ``axis``."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.tile_param
        axis = check_axis(bottom[0], p.axis)
        if p.tiles <= 0:
            raise LayerError(f"tiles must be at least 1, got {p.tiles}")
        shape = bottom[0].shape
        top[0].reshape((*shape[:axis], shape[axis] * p.tiles, *shape[axis + 1 :]))
        self._axis, self._tiled = axis, (*shape[:axis], p.tiles, *shape[axis:])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.copyto(top[0].data.reshape(self._tiled), np.expand_dims(bottom[0].data, self._axis))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the bottom's gradient: the sum over its copies."""
        if propagate_down[0]:
            np.sum(top[0].diff.reshape(self._tiled), axis=self._axis, out=bottom[0].diff)


@layer_types.register("BatchReindex")
class BatchReindex(Layer):
    """Item i of the top is item index[i] of bottom 0.

    Bottoms: items (N, ...); indices from 0 to N - 1, (M,), in any order and any number of times. Top: (M, ...).
    """

    n_bottoms = (2, 2)
    host_only = True
    exact_bottoms = (1,)
    temporaries = 1
    gradient_bottoms = (0,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[1].ndim != 1:
            raise LayerError(f"wants indices of one axis, got shape {bottom[1].shape}")
        check_n_axes(1, bottom[0])
        top[0].reshape((bottom[1].shape[0], *bottom[0].shape[1:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._places = bottom[1].data.astype(np.int64)
        n_items = bottom[0].shape[0]
        wrong = (self._places < 0) | (self._places >= n_items)
        if wrong.any():
            raise LayerError(f"index {self._places[wrong][0]} is not in a batch of {n_items} items")
        top[0].data_storage[...] = bottom[0].data_storage[self._places]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write each item's gradient: the sum over its copies, 0 without any."""
        refuse_gradient(propagate_down, [1])
        if propagate_down[0]:
            bottom[0].diff_flat[...] = 0
            np.add.at(bottom[0].diff_storage, self._places, top[0].diff_storage)


@layer_types.register("Filter")
class Filter(Layer):
    """Keeps the items of a batch for which the selector is not 0.

    Bottoms: any number of blobs (N, ...); last, the selector, one number for each item. Tops: for each blob, its kept
    items, (number kept, ...).
    """

    n_bottoms = (2, None)
    n_tops = (1, None)
    reshape_always = True
    host_only = True
    temporaries = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(top) != len(bottom) - 1:
            raise LayerError(f"wants one top fewer than bottoms, got {len(bottom)} bottoms, {len(top)} tops")
        self._seen = False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops to the number of items kept; the first time, before there are data, to all of them (Caffe)."""
        *blobs, selector = bottom
        check_n_axes(1, *bottom)
        if selector.count(1) != 1:
            raise LayerError(f"wants a selector of one number an item, got shape {selector.shape}")
        for blob in blobs:
            if blob.shape[0] != selector.shape[0]:
                raise LayerError(f"the selector has {selector.shape[0]} items, a bottom {blob.shape[0]}")
        self._places = np.flatnonzero(selector.data)
        n_items = len(self._places) if self._seen else selector.shape[0]
        self._seen = True
        for source, target in zip(blobs, top, strict=True):
            target.reshape((n_items, *source.shape[1:]))

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != len(self.param.bottom) - 1

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for source, target in zip(bottom, top, strict=False):
            target.data_storage[...] = source.data_storage[self._places]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradients of the items kept to their places; those of the others are 0."""
        refuse_gradient(propagate_down, [len(bottom) - 1])
        for source, target, wanted in zip(bottom, top, propagate_down, strict=False):
            if wanted:
                source.diff_flat[...] = 0
                source.diff_storage[self._places] = target.diff_storage
