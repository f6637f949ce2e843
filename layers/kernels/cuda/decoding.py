"""Readers' decoder of image files into batches on the device: each thread has a stream and a decoder of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.launch import THREADS, kernel
from scaffe.layers.kernels.cuda.nvimagecodec import Decode

MOST_BLOCKS = 64  # of an image: each copies rows
BYTE = np.dtype(np.uint8)


class _OfThread(threading.local):
    """A reader thread's own things, made when it first decodes or copies."""

    decode: Decode | None = None
    stream: Any = None


class ImageDecoder:
    """Decodes on the device that is now current, whichever thread calls: a ``data.feeds.feed.PixelDevice``.

    Args:
        make: makes a thread's decoder.
    """

    def __init__(self, make: Callable[[], Decode]) -> None:
        self._make, self._number, self._own = make, device.current(), _OfThread()
        self.first_error = ""

    def empty(self, n_bytes: int) -> Any:
        """Flat uint8 memory."""
        self._go_there()
        return device.load().empty(n_bytes, BYTE)

    def decode(self, files: Sequence[np.ndarray], sizes: np.ndarray, places: np.ndarray, rows: np.ndarray,
               out: Any) -> np.ndarray:
        """Decode files and write a part of each image to ``out``. Returns which could be decoded."""
        stream = self._stream()
        try:
            self._own.decode = self._own.decode or self._make()
            images = list(self._own.decode(files, stream))  # kept until their parts are copied
            lie = [_lies(image, size) for image, size in zip(images, sizes.tolist(), strict=True)]
        except Exception as error:  # of classes that only the decoder's package knows; the host decodes then
            self.first_error = self.first_error or device.first_line(error)
            return np.zeros(len(files), bool)
        found = np.array([address > 0 for address, _ in lie], bool)
        if found.any():
            before = device.current_stream()
            stream.use()  # CuPy's `with stream` would forget what `use` has chosen before
            try:
                self._take(np.array(lie, np.int64)[found], places[found], rows[found], out)
            finally:
                before.use()
            stream.synchronize()  # then the images may go, and the batch be given
        return found

    def upload(self, pixels: np.ndarray, out: Any) -> None:
        """Copy pixels from the host, and wait for it."""
        stream = self._stream()
        device.copy_from_pinned(out, pixels, stream)
        stream.synchronize()

    def _go_there(self) -> None:
        """Make our device this thread's current one."""
        if device.current() != self._number:
            device.load().cuda.Device(self._number).use()

    def _stream(self) -> Any:
        """This thread's stream, on our device."""
        self._go_there()
        if self._own.stream is None:
            self._own.stream = device.stream()
        return self._own.stream

    def _take(self, lie: np.ndarray, places: np.ndarray, rows: np.ndarray, out: Any) -> None:
        """Queue the copy of parts of images, of which ``lie`` has address and row pitch, on the current stream."""
        _, height, width, n_channels = out.shape
        table = np.column_stack([lie[:, 0] + places[:, 0] * lie[:, 1] + places[:, 1] * n_channels, lie[:, 1], rows])
        kernel("conversion", "take_parts", np.dtype(np.float32))(
            (min(height, MOST_BLOCKS), len(table)), (THREADS,),
            (device.load().asarray(table), out, np.int32(height), np.int32(width * n_channels)))


def _lies(image: Any, size: Sequence[int]) -> tuple[int, int]:
    """An image's address, and the bytes from one row to the next; zeros if there is none of that height and width with
    three channels and no gaps within a row."""
    if image is None:
        return 0, 0
    interface = image.__cuda_array_interface__
    shape, strides = tuple(interface["shape"]), interface.get("strides") or (3 * size[1], 3, 1)
    if shape != (*size, 3) or interface["typestr"] != BYTE.str or tuple(strides[1:]) != (3, 1):
        return 0, 0
    return interface["data"][0], strides[0]
