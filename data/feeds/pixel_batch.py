"""The buffer of a batch of images: floats, or uint8 pixels that the kernels convert to floats, also on a device."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.data.feeds.feed import Allocate, PixelDevice, check_batches_fit

FLOAT_BYTES = np.dtype(np.float32).itemsize


class PixelBatch:
    """The buffer of one batch, whose memory grows if needed.

    Args:
        n: samples.
        allocate: n_elems → flat float32 memory.
        gives_pixels: whether batches may be given as pixels.
        device: where batches of pixels lie; None: on the host.

    Attributes:
        images: float32 (n, height, width, channels), transformed; or uint8, cropped but neither mirrored nor changed.
        labels: float32 (n,).
        places: int32 (n, 3), for pixels: the crop's first row and column, and 1 if the image is to be mirrored.
        holds_pixels: which of the two ``images`` are.
        on_device: the batch's pixels where they are given on a device: uint8, of ``images``' shape, which then holds
            those samples that the host has made and uploads.
    """

    def __init__(self, n: int, allocate: Allocate, gives_pixels: bool, device: PixelDevice | None = None) -> None:
        self._allocate, self._n, self._device = allocate, n, device
        self._device_memory: Any = None
        self.on_device: Any = None
        self._memory: dict[bool, np.ndarray] = {}  # of pixels, and of floats
        self.labels = allocate(n)
        self.places = allocate(3 * n).view(np.int32).reshape(n, 3) if gives_pixels else None
        self.holds_pixels = gives_pixels

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Images and labels; for pixels also ``places``."""
        if self.holds_pixels and self.places is not None:
            return self.images if self.on_device is None else self.on_device, self.labels, self.places
        return self.images, self.labels

    def take_shape(self, storage_shape: tuple[int, ...]) -> None:
        """Change the images' shape to (n, height, width, channels); allocates only if they need more memory."""
        n_elems, dtype = prod(storage_shape), np.dtype(np.uint8 if self.holds_pixels else np.float32)
        n_bytes, memory = n_elems * dtype.itemsize, self._memory.get(self.holds_pixels)
        if memory is None or n_bytes > memory.nbytes:
            check_batches_fit(1, [storage_shape])
            memory = self._memory[self.holds_pixels] = self._allocate(-(-n_bytes // FLOAT_BYTES))
        self.images = memory.view(dtype)[:n_elems].reshape(storage_shape)
        if self._device is not None and self.holds_pixels:
            if self._device_memory is None or n_elems > self._device_memory.size:
                self._device_memory = self._device.empty(n_elems)
            self.on_device = self._device_memory[:n_elems].reshape(storage_shape)

    def upload(self, rows: slice) -> None:
        """Copy the pixels of samples that the host has made to the device."""
        if self._device is not None:
            self._device.upload(self.images[rows], self.on_device[rows])


class NotPixels(Exception):
    """Raised if a sample of a batch of pixels has no pixels; the batch is then made again, as floats."""
