"""Crops, mirrors, subtracts the mean of and scales clips (C3D's DataTransformer::VideoTransform)."""

from __future__ import annotations

import numpy as np

from scaffe.data.errors import DataError
from scaffe.data.records.transform import TransformOptions, mean_of_channels


class ClipTransform:
    """Transforms all frames of a clip alike.

    Args:
        options: how; ``mean_image`` is the mean of uncropped clips, float32 (channels, frames, height, width).
    """

    def __init__(self, options: TransformOptions) -> None:
        self._options = options
        self._random_crop = options.random_crop and options.crop_size > 0

    @property
    def draws_per_visit(self) -> int:
        """Random numbers that a clip takes: one to mirror, then two to place the crop; each only if asked for."""
        return int(self._options.mirror) + 2 * int(self._random_crop)

    def apply(self, clip: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Transform a clip.

        Args:
            clip: uint8 (frames, height, width, channels).
            draws: uint32 (draws_per_visit,).

        Returns:
            float32 (frames, height', width', channels).

        Raises:
            DataError: it is smaller than the crop, or the mean does not fit it.
        """
        options, (_, height, width, n_channels) = self._options, clip.shape
        side = options.crop_size
        if side > min(height, width):
            raise DataError(f"crop_size {side} is larger than the frames of {height} x {width}")
        mean = self._mean(clip.shape, n_channels)
        window = (slice(None), slice(None), slice(None))
        if side:
            top, left = ((int(draws[-2]) % (height - side + 1), int(draws[-1]) % (width - side + 1))
                         if self._random_crop else ((height - side) // 2, (width - side) // 2))
            window = (slice(None), slice(top, top + side), slice(left, left + side))
        pixels = clip[window].astype(np.float32) - (mean[window] if mean.ndim == 4 else mean)
        if options.mirror and draws[0] % 2:
            pixels = pixels[:, :, ::-1]
        scaled: np.ndarray = pixels * np.float32(options.scale)
        return scaled

    def _mean(self, shape: tuple[int, ...], n_channels: int) -> np.ndarray:
        """The mean, (frames, height, width, channels) or (channels,)."""
        options = self._options
        if options.mean_image is not None:
            mean = np.moveaxis(options.mean_image, 0, -1)
            if mean.shape != shape:
                raise DataError(f"the mean file has {mean.shape}, the clip {shape} (frames, height, width, channels)")
            return mean
        return mean_of_channels(options.mean_values, n_channels)
