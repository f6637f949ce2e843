"""Layers that read batches from data files; the trainer's feed reads them ahead in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Data")
class Data(Layer):
    """Batches from the database that ``data_param.source`` names.

    Tops: images (N, C, H, W); with a second top, their labels (N,).

    The batches come from a feed, which ``context.open_feed(param, context)`` opens. A feed has ``shapes``, one for
    each top; ``next()``, which returns one array for each top in storage order (images channels-last); and ``close()``.

    Raises:
        LayerError: the context has no ``open_feed``, as the trainer would set it.
    """

    n_bottoms = (0, 0)
    n_tops: ClassVar[tuple[int, int | None]] = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Open the feed. It takes from the random stream the same draws as Caffe's readers do when they start."""
        if self.context.open_feed is None:
            raise LayerError("needs the trainer to open its data source")
        self.feed = self.context.open_feed(self.param, self.context)
        self._staging = self.context.kernels.staging(self.feed.next)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the tops the feed's shapes."""
        for blob, shape in zip(top, self.feed.shapes, strict=True):
            blob.reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write the next batch to the tops; a batch of another shape reshapes them."""
        for blob, array in zip(top, self._staging.next(), strict=True):
            if array.size != blob.n_elems or _logical(array) != tuple(blob.shape):
                blob.reshape(_logical(array))  # batches of one image, each of its own shape
            blob.data_flat[:] = array.reshape(-1)

    def close(self) -> None:
        """Close the feed, which stops its readers."""
        self.feed.close()


@layer_types.register("ImageData", "WindowData")
class ImageData(Data):
    """Images (N, C, H, W) and labels (N,) from a list of image files, or from windows cut out of images."""

    n_tops = (2, 2)


@layer_types.register("HDF5Data")
class Hdf5Data(Data):
    """Datasets from HDF5 files: each top takes the dataset of its own name."""

    n_tops = (1, None)


def _logical(array: np.ndarray) -> tuple[int, ...]:
    """The shape in Caffe's order, (N, C, H, W), of an array stored as (N, H, W, C)."""
    shape = array.shape
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) >= 4 else shape
