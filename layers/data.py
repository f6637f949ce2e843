"""Layers of data from outside: batches read ahead by the trainer's feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Data")
class Data(Layer):
    """Images (N, C, H, W), and labels (N,) where a second top asks for them, from a DataParameter's source.

    The feed comes from ``context.open_feed(param, context)``: it has ``shapes``, one per top, ``next()`` that gives
    one array per top in storage order, and ``close()``.

    Raises:
        LayerError: when nobody lends a feed.
    """

    n_bottoms = (0, 0)
    n_tops: ClassVar[tuple[int, int | None]] = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Open the feed, which takes the draws from the stream that Caffe's readers take as they start."""
        if self.context.open_feed is None:
            raise LayerError("needs the trainer to open its data source")
        self.feed = self.context.open_feed(self.param, self.context)
        self._staging = self.context.kernels.staging(self.feed.next)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Tops as the feed's shapes."""
        for blob, shape in zip(top, self.feed.shapes, strict=True):
            blob.reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The next batch."""
        for blob, array in zip(top, self._staging.next(), strict=True):
            if array.size != blob.n_elems or _logical(array) != tuple(blob.shape):
                blob.reshape(_logical(array))  # images of their own shapes, one a batch
            blob.data_flat[:] = array.reshape(-1)

    def close(self) -> None:
        """Stop the readers."""
        self.feed.close()


@layer_types.register("ImageData", "WindowData")
class ImageData(Data):
    """Images and labels from a list of files, or windows cut out of images: two tops."""

    n_tops = (2, 2)


@layer_types.register("HDF5Data")
class Hdf5Data(Data):
    """The datasets of HDF5 files that have the tops' names."""

    n_tops = (1, None)


def _logical(array: np.ndarray) -> tuple[int, ...]:
    """The shape in Caffe's order of an array in storage order."""
    shape = array.shape
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) >= 4 else shape
