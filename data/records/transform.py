"""Caffe's TransformationParameter: crop, mirror, mean, scale (Caffe 1.0, DataTransformer)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaffe.data.errors import DataError
from scaffe.data.sources.source import Run, Shape


@dataclass(frozen=True)
class TransformOptions:
    """What to do to each sample: result = (pixel - mean) * scale, of a window, perhaps mirrored.

    Attributes:
        scale: factor, after the mean is subtracted.
        mirror: flip left to right every other time, at random; in the TEST phase too, as in Caffe.
        crop_size: side of the square window; 0 takes the whole image.
        mean_values: one for all channels or one a channel.
        mean_image: float32 (channels, height, width) of the uncropped image, as a mean file has it.
        random_crop: the window lies anywhere (TRAIN); else in the middle (TEST).
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


class Transform:
    """Makes a batch's floats out of runs of samples. Threads share it.

    Args:
        options: what to do.
    """

    def __init__(self, options: TransformOptions) -> None:
        self.options = options
        self._random_crop = options.random_crop and options.crop_size > 0
        self._scale = np.float32(options.scale)
        self._mean_rows: dict[int, np.ndarray] = {}
        self._image_mean: np.ndarray | None = None  # in (row, column, channel) order
        if options.mean_image is not None:
            self._image_mean = np.ascontiguousarray(np.moveaxis(options.mean_image, 0, -1), np.float32).reshape(-1)

    @property
    def draws_per_visit(self) -> int:
        """Random numbers that one sample takes: one to mirror, two to place the window, in this order."""
        return int(self.options.mirror) + 2 * int(self._random_crop)

    def out_shape(self, shape: Shape) -> Shape:
        """(channels, height, width) after the crop. Raises DataError where a sample of this shape does not fit."""
        channels, height, width = shape
        side = self.options.crop_size
        if side > min(height, width):
            raise DataError(f"crop_size {side} is larger than the image of {height} x {width}")
        if self.options.mean_image is not None and self.options.mean_image.shape != tuple(shape):
            found = " x ".join(map(str, self.options.mean_image.shape))
            raise DataError(f"the mean file has the shape {found}, the image has {' x '.join(map(str, shape))}")
        if len(self.options.mean_values) not in (0, 1, channels):
            raise DataError(f"expected 1 mean_value or one for each of {channels} channel(s), "
                            f"got {len(self.options.mean_values)}")
        return (channels, side, side) if side else (channels, height, width)

    def apply(self, run: Run, draws: np.ndarray, out: np.ndarray) -> None:
        """Write the samples of a run.

        Args:
            run: n samples.
            draws: uint32 (n, draws_per_visit), from ``draws.Draws``.
            out: float32 (n, height, width, channels), contiguous, of ``out_shape``.
        """
        from scaffe.data.kernels.crop import crop_batch

        channels, height, width = run.shape
        if not self.options.crop_size and not self.options.mirror:  # an image is one long row then
            height, width, out = 1, height * width, out.reshape(len(out), 1, height * width, channels)
        strides = (1, width * channels, channels) if run.interleaved else (height * width, width, 1)
        mean, mean_stride = self._mean(channels, width)
        places = self._places(run.shape, draws)
        crop_batch(run.pixels, run.starts, strides, places, mean, mean_stride, self._scale, out)

    def _mean(self, channels: int, width: int) -> tuple[np.ndarray, int]:
        """The mean's rows of (column, channel) floats, and the elements between them; 0: one row serves all."""
        if self._image_mean is not None:
            return self._image_mean, width * channels
        row = self._mean_rows.get(channels)
        if row is None or row.size < channels * width:  # the longest so far serves shorter rows too
            values = np.array(self.options.mean_values or (0.0,), np.float32)
            row = self._mean_rows[channels] = np.tile(np.broadcast_to(values, (channels,)), width)
        return row, 0

    def _places(self, shape: Shape, draws: np.ndarray) -> np.ndarray:
        """First row, first column and whether to mirror, for each sample."""
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
