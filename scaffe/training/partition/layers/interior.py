"""Halo overlap: a layer with windows computes its interior while halos travel, and the borders afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer
from scaffe.layers.base.random import Stream
from scaffe.training.partition.layers.halo import Halo, moved
from scaffe.training.partition.planner.windows import WINDOWED, filter_options

INTERIOR_FIRST = (*WINDOWED, "LRN", "LCN")
"""Types that compute enough to hide halos behind. Pooling takes less time than its blobs take to copy."""
LEAST_SHARE = 0.5
"""Of its outputs that must need no halo: with fewer there is too little to compute while halos travel."""


@dataclass
class Band:
    """Some of the places along the axis that is cut: a layer with blobs of its own.

    Attributes:
        reads: places of the whole bottom.
        makes: places of the whole top.
        kept: places of the layer's top that these are; the layer may compute some for the borders of the bottom too.
    """

    layer: Layer
    reads: slice
    makes: slice
    kept: slice
    bottom: Blob
    top: Blob


class HaloOverlap(Layer):
    """A layer with windows on a bottom that is cut: one layer for the interior, one for each border.

    Forward waits for the halo once the interior's outputs are there; backward sends the halo's gradient off once the
    borders' is there, and then computes the interior's. What is added is added in the same order whenever messages
    come. Bottom: own part and halo. Top: own part; of a layer that is cropped (LRN) also what is cropped off, without
    values. Blobs: the layer's own.

    Args:
        param: the layer's message, without padding of rows.

    Attributes:
        bands: the interior, and then the borders; from ``setup`` on.
    """

    reads_bottoms = reads_tops = False
    bands: list[Band]

    def __init__(self, param: Any, context: Context, make: Callable[[Any, Context], Layer], halo: Halo) -> None:
        super().__init__(param, context)
        self._make, self._halo = make, halo
        self._made = halo.mine if halo.window.crops else halo.outputs
        self._has_own_weights = param.type == "LocalConvolution"  # for each row of the top, along their first axis
        halo.is_awaited = True

    @staticmethod
    def pays(halo: Halo) -> bool:
        """Whether halos travel between nodes, and enough is to be computed without them."""
        n_inside, n_own = (rows.stop - rows.start for rows in (halo.inside, halo.outputs))
        return halo.group.spans_nodes and LEAST_SHARE * n_own <= n_inside < n_own

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the parameters; the interior's layer fills them, unless they are drawn for the whole net's layer."""
        outputs, inside = self._halo.outputs, self._halo.inside
        bare, context = self._without_fillers(), replace(self.context, rng=Stream(0))
        borders = (slice(outputs.start, inside.start), slice(inside.stop, outputs.stop))
        self.bands = [self._band(self.param, self.context, inside, bottom[0]),
                      *(self._band(bare, context, rows, bottom[0]) for rows in borders if rows.start < rows.stop)]
        if self._has_own_weights:
            for blob in self.bands[0].layer.blobs:
                self.add_blob((outputs.stop - outputs.start, *blob.shape[1:]), None)
            return
        self.blobs = self.bands[0].layer.blobs
        self.param_propagate_down = [True] * len(self.blobs)
        for band in self.bands[1:]:
            band.layer.blobs = self.blobs

    def _without_fillers(self) -> Any:
        bare = type(self.param)()
        bare.CopyFrom(self.param)
        for name in ("weight_filler", "bias_filler") if bare.type in WINDOWED else ():
            filter_options(bare).ClearField(name)
        return bare

    def _band(self, param: Any, context: Context, places: slice, whole: Blob) -> Band:
        halo = self._halo
        reads = halo.window.reads(places, halo.length)
        kept = moved(places, reads.start if halo.window.crops else places.start)
        band = Band(self._make(param, context), moved(reads, halo.mine.start), moved(places, self._made.start), kept,
                    context.blob(), context.blob())
        band.bottom.reshape(halo.with_length(whole.shape, reads.stop - reads.start))
        band.layer.setup([band.bottom], [band.top])
        return band

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for band in self.bands:
            n_read = band.reads.stop - band.reads.start
            band.bottom.reshape(self._halo.with_length(bottom[0].shape, n_read))
            band.layer.reshape([band.bottom], [band.top])
        n_made = self._made.stop - self._made.start
        top[0].reshape(self._halo.with_length(self.bands[0].top.shape, n_made))

    def fuse(self, following: Layer) -> bool:
        """See Layer: where the bands' layers do."""
        return all(band.layer.fuse(following) for band in self.bands)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward(bottom[0], top[0], lambda band: band.layer.forward([band.bottom], [band.top]))

    def forward_fused(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._forward(bottom[0], top[0], lambda band: band.layer.forward_fused([band.bottom], [band.top]))

    def _forward(self, bottom: Blob, top: Blob, run: Callable[[Band], None]) -> None:
        front = self._halo.front
        for band in self.bands:
            if band is not self.bands[0]:
                self._halo.arrive(bottom)
            for mine, whole, place in self._own_weights(band):
                mine.bind_data(whole.data_flat[place])
            front(band.bottom.data)[...] = front(bottom.data)[:, band.reads]
            run(band)
            front(top.data)[:, band.makes] = front(band.top.data)[:, band.kept]
        self._halo.arrive(bottom)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            bottom[0].diff_flat[...] = 0
        for band in self.bands[1:]:
            self._backward(band, top[0], propagate_down, bottom[0])
        if propagate_down[0]:
            self.bottoms_written()  # as far as the halo is concerned
        self._backward(self.bands[0], top[0], propagate_down, bottom[0])

    def _backward(self, band: Band, top: Blob, propagate_down: Sequence[bool], bottom: Blob) -> None:
        for mine, whole, place in self._own_weights(band):
            mine.bind(whole.data_flat[place], whole.diff_flat[place])
        band.layer.param_propagate_down = self.param_propagate_down
        front = self._halo.front
        if self._halo.window.crops:
            band.top.diff_flat[...] = 0
        front(band.top.diff)[:, band.kept] = front(top.diff)[:, band.makes]
        band.layer.backward([band.top], propagate_down, [band.bottom])
        if propagate_down[0]:
            gradient = front(bottom.diff)[:, band.reads]
            gradient += front(band.bottom.diff)

    def _own_weights(self, band: Band) -> Iterator[tuple[Blob, Blob, slice]]:
        """A band's parameters, each with the whole ones and where they lie in these, which the net may have moved."""
        for mine, whole in zip(band.layer.blobs, self.blobs, strict=True) if self._has_own_weights else ():
            n_a_row = whole.count(1)
            yield mine, whole, slice(band.makes.start * n_a_row, band.makes.stop * n_a_row)
