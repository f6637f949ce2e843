"""The MemoryData layer: batches out of arrays that the program hands over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("MemoryData")
class MemoryData(Layer):
    """Images (batch_size, channels, height, width) and labels (batch_size,), one batch after the other, from the first
    again at the end. ``load`` hands them over (pycaffe's ``set_input_arrays``).

    Source: Caffe 1.0, MemoryDataLayer.

    Raises:
        LayerError: an option that is not above 0, or forward before ``load``.
    """

    n_bottoms = (0, 0)
    n_tops = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the shape of a batch."""
        p = self.param.memory_data_param
        self.shape = (p.batch_size, p.channels, p.height, p.width)
        if not all(self.shape):
            raise LayerError("memory_data_param needs batch_size, channels, height and width above 0; "
                             f"they are {self.shape}")
        self.data = self.labels = np.zeros(0, np.float32)
        self.at = 0

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Tops of one batch."""
        top[0].reshape(self.shape)
        top[1].reshape(self.shape[:1])

    def load(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Hand over images (n, channels, height, width) and n labels, n a multiple of batch_size; not copied.

        Raises:
            LayerError: another shape or number.
        """
        n_images, batch = len(data), self.shape[0]
        if data.shape[1:] != self.shape[1:] or n_images == 0 or n_images % batch:
            raise LayerError(f"expected data of shape (a multiple of {batch}, {', '.join(map(str, self.shape[1:]))}), "
                             f"got {data.shape}")
        if labels.size != n_images:
            raise LayerError(f"expected {n_images} labels, one an image, got {labels.size}")
        self.data, self.labels, self.at = data, labels.reshape(-1), 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The next batch."""
        if not len(self.data):
            raise LayerError("has no data yet: hand it over with set_input_arrays")
        batch = slice(self.at, self.at + self.shape[0])
        for blob, values in zip(top, (self.data, self.labels), strict=True):
            blob.data[...] = self.context.kernels.to_device(values[batch], blob.dtype)
        self.at = batch.stop % len(self.data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Nothing to do: there are no bottoms."""
