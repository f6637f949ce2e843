"""A layer with windows that computes what needs no halo while that travels, and the borders afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Context, Layer
from scaffe.layers.base.random import Stream
from scaffe.training.partition.halo import Halo
from scaffe.training.partition.windows import filter_options

LEAST_SHARE = 0.5
"""Of its outputs that must need no halo: with fewer there is too little to compute while halos travel."""


@dataclass
class Band:
    """Some of the rows: a layer with blobs of its own.

    Attributes:
        layer: computes them.
        reads: rows of the bottom.
        makes: rows of the top.
        bottom, top: of the layer.
    """

    layer: Layer
    reads: slice
    makes: slice
    bottom: Blob
    top: Blob

    def reshape(self, bottom: Blob) -> None:
        """Take over the shape of the whole bottom."""
        n_images, n_channels, _, width = bottom.shape
        self.bottom.reshape((n_images, n_channels, self.reads.stop - self.reads.start, width))
        self.layer.reshape([self.bottom], [self.top])


class InteriorFirst(Layer):
    """A Convolution or LocalConvolution by rows that are cut: one layer for the interior, one for each border.

    Forward waits for the halo once the interior's outputs are there; backward sends the halo's gradient off once the
    borders' is there, and then computes the interior's. What is added is added in the same order whenever messages
    come. Bottom: (G, C, own rows and halo, W). Top: (G, num_output, own rows, W). Blobs: the layer's own.

    Args:
        param: the layer's message, without padding of rows.
        context: the net's.
        make: makes a layer of the message's type.
        halo: brings the bottom.
        has_own_weights: whether every row of the top has weights of its own, along their first axis.

    Attributes:
        bands: the interior, and then the borders; from ``setup`` on.
    """

    reads_bottoms = reads_tops = False
    bands: list[Band]

    def __init__(self, param: Any, context: Context, make: Callable[[Any, Context], Layer], halo: Halo,
                 has_own_weights: bool) -> None:
        super().__init__(param, context)
        self._make, self._halo, self._has_own_weights = make, halo, has_own_weights
        halo.is_awaited = True

    @staticmethod
    def pays(halo: Halo) -> bool:
        """Whether halos travel between nodes, and enough is to be computed without them."""
        n_inside, n_own = (rows.stop - rows.start for rows in (halo.inside, halo.outputs))
        return halo.group.spans_nodes and LEAST_SHARE * n_own <= n_inside < n_own

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the parameters; the interior's layer fills them, unless they are drawn for the whole net's layer."""
        outputs, inside = self._halo.outputs, self._halo.inside
        self.bands = [self._band(self.param, self.context, inside, bottom[0])]
        for rows in (slice(outputs.start, inside.start), slice(inside.stop, outputs.stop)):
            if rows.start < rows.stop:
                bare, context = type(self.param)(), replace(self.context, rng=Stream(0))
                bare.CopyFrom(self.param)
                filter_options(bare).ClearField("weight_filler")
                filter_options(bare).ClearField("bias_filler")
                self.bands.append(self._band(bare, context, rows, bottom[0]))
        if self._has_own_weights:
            for blob in self.bands[0].layer.blobs:
                self.add_blob((outputs.stop - outputs.start, *blob.shape[1:]), None)
            return
        self.blobs = self.bands[0].layer.blobs
        self.param_propagate_down = [True] * len(self.blobs)
        for band in self.bands[1:]:
            band.layer.blobs = self.blobs

    def _band(self, param: Any, context: Context, rows: slice, whole: Blob) -> Band:
        first, origin = self._halo.outputs.start, self._halo.mine.start
        reads = self._halo.window.reads(rows, self._halo.length)
        band = Band(self._make(param, context), slice(reads.start - origin, reads.stop - origin),
                     slice(rows.start - first, rows.stop - first), context.blob(), context.blob())
        n_images, n_channels, _, width = whole.shape
        band.bottom.reshape((n_images, n_channels, reads.stop - reads.start, width))
        band.layer.setup([band.bottom], [band.top])
        return band

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top."""
        for band in self.bands:
            band.reshape(bottom[0])
        n_images, n_outputs, _, width = self.bands[0].top.shape
        top[0].reshape((n_images, n_outputs, max(band.makes.stop for band in self.bands), width))

    def fuse(self, following: Layer) -> bool:
        """See Layer: where the bands' layers do."""
        return all(band.layer.fuse(following) for band in self.bands)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The interior, and then the borders."""
        self._forward(bottom[0], top[0], lambda band: band.layer.forward([band.bottom], [band.top]))

    def forward_fused(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """See Layer."""
        self._forward(bottom[0], top[0], lambda band: band.layer.forward_fused([band.bottom], [band.top]))

    def _forward(self, bottom: Blob, top: Blob, run: Callable[[Band], None]) -> None:
        for band in self.bands:
            if band is not self.bands[0]:
                self._halo.arrive(bottom)
            for mine, whole, place in self._own_weights(band):
                mine.bind_data(whole.data_flat[place])
            band.bottom.data_storage[...] = bottom.data_storage[:, band.reads]
            run(band)
            top.data_storage[:, band.makes] = band.top.data_storage
        self._halo.arrive(bottom)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """The borders, and then the interior."""
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
        band.top.diff_storage[...] = top.diff_storage[:, band.makes]
        band.layer.backward([band.top], propagate_down, [band.bottom])
        if propagate_down[0]:
            bottom.diff_storage[:, band.reads] += band.bottom.diff_storage

    def _own_weights(self, band: Band) -> Iterator[tuple[Blob, Blob, slice]]:
        """A band's parameters, each with the whole ones and where they lie in these, which the net may have moved."""
        for mine, whole in zip(band.layer.blobs, self.blobs, strict=True) if self._has_own_weights else ():
            n_a_row = whole.count(1)
            yield mine, whole, slice(band.makes.start * n_a_row, band.makes.stop * n_a_row)
