"""Layers that read batches from data files; the trainer's feed reads them ahead in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types

PLACES = 2  # index of the batch's array with the positions of crops


@layer_types.register("Data")
class Data(Layer):
    """Batches from the database that ``data_param.source`` names.

    Tops: images (N, C, H, W); with a second top, their labels (N,).

    The batches come from a feed, which ``context.open_feed(param, context)`` opens. A feed has ``shapes``, one for
    each top; ``next()``, which returns one array for each top in storage order (images channels-last); and ``close()``.
    If a feed has a ``change``, images may be uint8 pixels, with the positions of crops as a third array; the kernels
    then convert them to floats, with the reader's arithmetic.

    Raises:
        LayerError: the context has no ``open_feed``, which the trainer sets.
    """

    n_bottoms = (0, 0)
    n_tops: ClassVar[tuple[int, int | None]] = (1, 2)

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        """See Layer."""
        return True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Open the feed. It takes from the random stream the same draws as Caffe's readers do when they start."""
        if self.context.open_feed is None:
            raise LayerError("needs the trainer to open its data source")
        self.feed = self.context.open_feed(self.param, self.context)
        self._staging = self.context.kernels.staging(self.feed.next)
        change = getattr(self.feed, "change", None)
        self._pixels = None if change is None else self.context.kernels.pixels(change)
        self.filled_tops = range(len(top))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the tops the feed's shapes; a net that does not name the last top leaves the labels."""
        for blob, shape in zip(top, self.feed.shapes, strict=False):
            blob.reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write the next batch to the tops; a batch of another shape reshapes them."""
        arrays = self._staging.next()
        for blob, array in zip(top, arrays, strict=False):
            if array.size != blob.n_elems or _logical(array) != tuple(blob.shape):
                blob.reshape(_logical(array))  # batches of one image, each of its own shape
            if array.dtype == np.uint8 and self._pixels is not None:
                self._pixels.run(array, arrays[PLACES], blob.data_flat)
            else:
                blob.data_flat[:] = array.reshape(-1)

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch as the feed gives it."""
        return int(self.feed.batch_bytes)

    @property
    def read_bytes(self) -> int:
        """Bytes of all batches that the feed holds at a time."""
        return int(self.feed.n_batches) * self.batch_bytes

    @property
    def device_bytes(self) -> int:
        """Bytes of those batches where they lie on a device."""
        return int(getattr(self.feed, "device_bytes", 0))

    def close(self) -> None:
        """Close the feed, which stops its readers."""
        self.feed.close()


@layer_types.register("ImageData", "WindowData")
class ImageData(Data):
    """Images (N, C, H, W) and labels (N,) from a list of image files, or from windows cut out of images."""

    n_tops = (2, 2)


@layer_types.register("DenseImageData")
class DenseImageData(Data):
    """Images (N, C, H, W) and an image of labels each, (N, 1, H, W) (SegNet's fork)."""

    n_tops = (2, 2)


@layer_types.register("ImageSegData")
class ImageSegData(Data):
    """Images (N, C, H, W), labels (N, 1, H, W) and the images' heights and widths (N, 1, 1, 2) (DeepLab, PSPNet)."""

    n_tops = (3, 3)
    auto_tops = True


@layer_types.register("VideoData")
class VideoData(Data):
    """Clips of videos (N, C, frames, H, W); with a second top, their labels, (N,) or (N, num_of_labels) (C3D)."""


@layer_types.register("AnnotatedData")
class AnnotatedData(Data):
    """Images (N, C, H, W) and the objects in them, from a database of AnnotatedDatum records (SSD's fork of Caffe).

    Top 1: (1, 1, G, 8), a row an object: item, label, instance, xmin, ymin, xmax, ymax, difficult. Corners are in
    fractions of the image; a batch without objects has one row of -1. Records without annotations give labels (N,).
    ``data_param`` names the database; ``annotated_data_param`` and ``transform_param`` say how images vary at random.
    """


@layer_types.register("HDF5Data")
class Hdf5Data(Data):
    """Datasets from HDF5 files: each top takes the dataset of its own name."""

    n_tops = (1, None)


def _logical(array: np.ndarray) -> tuple[int, ...]:
    """The shape in Caffe's order, (N, C, H, W), of an array stored as (N, H, W, C)."""
    shape = array.shape
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) >= 4 else shape
