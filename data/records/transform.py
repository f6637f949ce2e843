"""Crops, mirrors, subtracts the mean and scales, images (Caffe 1.0's DataTransformer) and clips (C3D's)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaffe.data.sources.source import Run, Shape
from scaffe.errors import DataError


@dataclass(frozen=True)
class TransformOptions:
    """How each sample is transformed: cropped, perhaps mirrored, then (pixel - mean) * scale.

    Attributes:
        scale: factor, applied after the mean is subtracted.
        mirror: flip left to right with probability 1/2; in the TEST phase too, as in Caffe.
        crop_size: side of the square crop in pixels; 0 keeps the whole image.
        mean_values: one for all channels, or one for each channel.
        mean_image: float32 (channels, height, width), the mean of the uncropped images, as a mean file has it.
        random_crop: crop at a random place (TRAIN) instead of the middle (TEST).
    """

    scale: float = 1.0
    mirror: bool = False
    crop_size: int = 0
    mean_values: tuple[float, ...] = ()
    mean_image: np.ndarray | None = None
    random_crop: bool = False

    def __post_init__(self) -> None:
        if self.mean_values and self.mean_image is not None:
            raise DataError("transform_param takes mean_file or mean_value, not both")


def mean_of_channels(values: Sequence[float], n_channels: int) -> np.ndarray:
    """The mean of each channel, float32 (n_channels,), from ``mean_value``: none (0), one for all or one for each.

    Raises:
        DataError: it is another number of values.
    """
    if len(values) not in (0, 1, n_channels):
        raise DataError(f"expected 1 mean_value or one for each of {n_channels} channel(s), got {len(values)}")
    return np.broadcast_to(np.array(values or (0.0,), np.float32), (n_channels,))


@dataclass(frozen=True)
class PixelChange:
    """What makes floats of cropped pixels, (pixel - mean) * scale, mirrored where that is asked for.

    Attributes:
        mean: float32, 1-D: the mean image as (row, column, channel), or one number for each channel.
        row_stride, column_stride: elements of the mean from one row, or column, of uncropped images to the next.
        scale: factor.
    """

    mean: np.ndarray
    row_stride: int
    column_stride: int
    scale: np.float32


class Transform:
    """Transforms runs of samples into the floats of a batch. Threads may share one object.

    Args:
        options: how to transform.
    """

    def __init__(self, options: TransformOptions) -> None:
        self.options = options
        self._random_crop = options.random_crop and options.crop_size > 0
        self._scale = np.float32(options.scale)
        self._mean_rows: dict[int, np.ndarray] = {}
        self._image_mean: np.ndarray | None = None  # in (row, column, channel) order
        self._mirrored_mean: np.ndarray | None = None
        if options.mean_image is not None:
            mean = np.moveaxis(options.mean_image, 0, -1)
            self._image_mean, self._mirrored_mean = (np.ascontiguousarray(image, np.float32).reshape(-1)
                                                     for image in (mean, mean[:, ::-1]))

    @property
    def draws_per_visit(self) -> int:
        """Random numbers used for each sample: one to mirror, then two to place the crop; each only if asked for."""
        return int(self.options.mirror) + 2 * int(self._random_crop)

    def out_shape(self, shape: Shape) -> Shape:
        """The shape of a sample after the transformation.

        Args:
            shape: (channels, height, width) before it.

        Returns:
            (channels, height, width) after it.

        Raises:
            DataError: the image is smaller than the crop, or the mean does not fit it.
        """
        channels, height, width = shape
        side = self.options.crop_size
        if side > min(height, width):
            raise DataError(f"crop_size {side} is larger than the image of {height} x {width}")
        if self.options.mean_image is not None and self.options.mean_image.shape != tuple(shape):
            found = " x ".join(map(str, self.options.mean_image.shape))
            raise DataError(f"the mean file has the shape {found}, the image has {' x '.join(map(str, shape))}")
        mean_of_channels(self.options.mean_values, channels)
        return (channels, side, side) if side else (channels, height, width)

    def apply(self, run: Run, draws: np.ndarray, out: np.ndarray) -> None:
        """Transform the samples of a run into ``out``.

        Args:
            run: n samples.
            draws: uint32 (n, draws_per_visit), random numbers from ``order.draws.Draws``.
            out: float32 (n, height, width, channels), contiguous; sizes as ``out_shape`` gives them.
        """
        from scaffe.data.kernels.images import crop_batch

        channels, height, width = run.shape
        if not self.options.crop_size and not self.options.mirror:  # then an image is treated as one long row
            height, width, out = 1, height * width, out.reshape(len(out), 1, height * width, channels)
        strides = (1, width * channels, channels) if run.interleaved else (height * width, width, 1)
        mean, mean_stride = self._mean(channels, width)
        places = self.places(run.shape, draws)
        crop_batch(run.pixels, run.starts, strides, places, mean, (mean_stride, width), self._scale, out)

    def gather(self, run: Run, draws: np.ndarray, out: np.ndarray, places: np.ndarray) -> None:
        """Crop the samples of a run and leave the rest of the transformation to ``change``.

        Args:
            run: n samples, of uint8.
            draws: as for ``apply``.
            out: uint8 (n, height, width, channels), contiguous; gets the crops, not mirrored.
            places: int32 (n, 3), gets for each sample the crop's first row, its first column, and 1 if it is mirrored.
        """
        from scaffe.data.kernels.images import gather_batch

        channels, height, width = run.shape
        places[:] = self.places(run.shape, draws)
        if not self.options.crop_size:  # then an image is one long row
            height, width, out = 1, height * width, out.reshape(len(out), 1, height * width, channels)
        strides = (1, width * channels, channels) if run.interleaved else (height * width, width, 1)
        gather_batch(run.pixels, run.starts, strides, places, out)

    def change(self, shape: Shape) -> PixelChange:
        """What ``gather`` leaves out, for samples of a shape (channels, height, width)."""
        channels, _, width = shape
        if self._image_mean is not None:
            return PixelChange(self._image_mean, width * channels, channels, self._scale)
        return PixelChange(mean_of_channels(self.options.mean_values, channels).copy(), 0, 0, self._scale)

    def _mean(self, channels: int, width: int) -> tuple[tuple[np.ndarray, np.ndarray], int]:
        """The mean as rows of (column, channel) floats, the same mirrored, and the elements from row to row.

        Those are 0 if one row serves all.
        """
        if self._image_mean is not None and self._mirrored_mean is not None:
            return (self._image_mean, self._mirrored_mean), width * channels
        row = self._mean_rows.get(channels)
        if row is None or row.size < channels * width:  # a longer row serves narrower images too
            row = self._mean_rows[channels] = np.tile(mean_of_channels(self.options.mean_values, channels), width)
        return (row, row), 0

    def places(self, shape: Shape, draws: np.ndarray) -> np.ndarray:
        """Where samples are cropped.

        Args:
            shape: (channels, height, width) of each before it.
            draws: as for ``apply``.

        Returns:
            int64 (n, 3): for each the crop's first row, its first column, and 1 if it is mirrored.
        """
        places = np.zeros((len(draws), 3), np.int64)
        side = self.options.crop_size
        if self.options.mirror:
            places[:, 2] = draws[:, 0] % 2
        if self._random_crop:
            places[:, 0] = draws[:, -2] % (shape[1] - side + 1)
            places[:, 1] = draws[:, -1] % (shape[2] - side + 1)
        elif side:
            places[:, :2] = (shape[1] - side) // 2, (shape[2] - side) // 2
        return places


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
