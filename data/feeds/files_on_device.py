"""Image files that a device decodes into its own memory, where batches of pixels then lie."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from scaffe.data.feeds.feed import PixelDevice
from scaffe.data.feeds.pixel_batch import PixelBatch
from scaffe.data.records.decode import MOST_PIXELS
from scaffe.data.records.jpeg_header import plain_size
from scaffe.data.records.transform import Transform
from scaffe.data.sources.source import FileSource
from scaffe.errors import DataError

CHANNELS = 3  # of a plain JPEG file
Size = tuple[int, int]


class FilesOnDevice:
    """Makes those samples of batches that are plain JPEG files. Threads share one object.

    Args:
        source: whose samples may be files.
        transform: how they are cropped.
        device: what decodes them.
    """

    def __init__(self, source: FileSource, transform: Transform, device: PixelDevice) -> None:
        self._source, self._transform, self._device = source, transform, device

    def any_of(self, records: np.ndarray) -> bool:
        """Whether one of these records is a plain JPEG file."""
        for record in records:
            with suppress(DataError):
                if _size(self._source.files(np.array([record]))[0][0])[0]:
                    return True
        return False

    def fill(self, records: np.ndarray, draws: np.ndarray, batch: PixelBatch, place: int,
             takes_shape: bool) -> list[slice]:
        """Decode what files there are among these samples into a batch of pixels.

        Args:
            records, draws: the samples, and the random numbers of each.
            batch: where they belong, from sample ``place`` on.
            takes_shape: the first one sets the batch's shape.

        Returns:
            The stretches of these samples that the host must make: what is no plain JPEG file, is damaged, or does not
            fit. The host says what is wrong.
        """
        is_left = np.ones(len(records), bool)
        try:
            files, labels = self._source.files(records)
        except DataError:
            return stretches(is_left)
        sizes = [_size(file) for file in files]
        if takes_shape and (first := self._storage(sizes[0])) is not None:
            batch.take_shape((len(batch.labels), *first))
        elif takes_shape:
            return stretches(is_left)
        fitting = {size for size in set(sizes) if self._storage(size) == batch.on_device.shape[1:]}
        chosen = [(i, file) for i, file in enumerate(files) if file is not None and sizes[i] in fitting]
        if chosen and batch.places is not None:
            mine = np.array([i for i, _ in chosen])
            extents = np.array(sizes)[mine]
            places = self._places(extents, draws[mine])
            found = self._device.decode([file for _, file in chosen], extents, places, place + mine, batch.on_device)
            done = mine[found]
            batch.places[place + done], batch.labels[place + done] = places[found], labels[done]
            is_left[done] = False
        return stretches(is_left)

    def _storage(self, size: Size) -> tuple[int, int, int] | None:
        """(height, width, channels) of a file's crop; None if that cannot be."""
        try:
            _, height, width = self._transform.out_shape((CHANNELS, *size))
        except DataError:
            return None
        return (height, width, CHANNELS) if size[0] else None

    def _places(self, sizes: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """int64 (n, 3), where images of these sizes are cropped."""
        places = np.empty((len(sizes), 3), np.int64)
        for height, width in np.unique(sizes, axis=0).tolist():
            alike = (sizes == (height, width)).all(1)
            places[alike] = self._transform.places((CHANNELS, height, width), draws[alike])
        return places


def _size(file: np.ndarray | None) -> Size:
    """Height and width of a plain JPEG file; 0 and 0 of what is none, or is too large."""
    height, width = (0, 0) if file is None else plain_size(file)
    return (height, width) if height * width <= MOST_PIXELS else (0, 0)


def stretches(chosen: np.ndarray) -> list[slice]:
    """The stretches of neighbours that are chosen, bool (n,)."""
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False)).reshape(-1, 2)
    return [slice(start, stop) for start, stop in edges.tolist()]
