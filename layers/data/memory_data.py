"""The MemoryData layer: batches from arrays in the program's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("MemoryData")
class MemoryData(Layer):
    """Batches from the arrays given to ``load`` (pycaffe's ``set_input_arrays``), in order; after the last, the first.

    Tops: images (batch_size, channels, height, width); labels (batch_size,).

    Source: Caffe 1.0, MemoryDataLayer.

    Raises:
        LayerError: a dimension is 0, or forward runs before ``load``.
    """

    n_bottoms = (0, 0)
    n_tops = (2, 2)

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        """See Layer."""
        return True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the shape of a batch. Raises LayerError if a dimension is 0."""
        p = self.param.memory_data_param
        self.shape = (p.batch_size, p.channels, p.height, p.width)
        if not all(self.shape):
            raise LayerError("memory_data_param needs batch_size, channels, height and width above 0; "
                             f"they are {self.shape}")
        self.data = self.labels = np.zeros(0, np.float32)
        self.at = 0

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the tops the shape of a batch."""
        top[0].reshape(self.shape)
        top[1].reshape(self.shape[:1])

    def load(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Set the images and labels that the batches come from, and start with the first. The arrays are not copied.

        Args:
            data: images, (n, channels, height, width); n is a multiple of batch_size.
            labels: n labels, of any shape.

        Raises:
            LayerError: the arrays do not have these shapes.
        """
        n_images, batch = len(data), self.shape[0]
        if data.shape[1:] != self.shape[1:] or n_images == 0 or n_images % batch:
            raise LayerError(f"expected data of shape (a multiple of {batch}, {', '.join(map(str, self.shape[1:]))}), "
                             f"got {data.shape}")
        if labels.size != n_images:
            raise LayerError(f"expected {n_images} labels, one an image, got {labels.size}")
        self.data, self.labels, self.at = data, labels.reshape(-1), 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy the next batch to the tops. Raises LayerError if there are no data yet."""
        if not len(self.data):
            raise LayerError("has no data yet: hand it over with set_input_arrays")
        batch = slice(self.at, self.at + self.shape[0])
        for blob, values in zip(top, (self.data, self.labels), strict=True):
            blob.data[...] = self.context.kernels.to_device(values[batch], blob.dtype)
        self.at = batch.stop % len(self.data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing to do: there are no bottoms."""
