"""Transforms an image and the image of its labels alike: scaled, padded, cropped, mirrored.

Facts: SegNet's DenseImageDataLayer (alexgkendall/caffe-segnet) and PSPNet's DataTransformer::TransformImgAndSeg
(hszhao/PSPNet).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scaffe.data.records.decode import opencv
from scaffe.data.records.transform import mean_of_channels
from scaffe.errors import DataError


@dataclass(frozen=True)
class PairOptions:
    """How each pair is transformed.

    Attributes:
        crop: height and width in pixels; (0, 0) keeps the whole image.
        random_crop: crop at a random place, else in the middle.
        mirror: flip left to right with probability 1/2.
        scales: one of these factors is drawn for each image, and its size multiplied by it.
        pads: images smaller than the crop are padded at the bottom and right, with the mean and ``ignore_label``;
            else they are refused.
        ignore_label: label of pixels without one.
        scale: factor on pixels after the mean is subtracted. Labels stay as they are.
        mean_values: one for all channels, or one for each.
        mean_image: float32 (height, width, channels) of the cropped image; None: none.
        label_factor: labels have the image's height and width divided by this; above 1 only without crop and scales.
    """

    crop: tuple[int, int] = (0, 0)
    random_crop: bool = False
    mirror: bool = False
    scales: tuple[float, ...] = ()
    pads: bool = False
    ignore_label: int = 255
    scale: float = 1.0
    mean_values: tuple[float, ...] = ()
    mean_image: np.ndarray | None = None
    label_factor: int = 1

    @property
    def crops_at_random(self) -> bool:
        """Whether two random numbers place the crop."""
        return self.random_crop and self.crop != (0, 0)

    @property
    def draws_per_visit(self) -> int:
        """Random numbers a pair takes: one to mirror, one for the factor, two for the crop, each only if needed."""
        return int(self.mirror) + int(bool(self.scales)) + 2 * int(self.crops_at_random)


def transform_pair(image: np.ndarray, labels: np.ndarray, draws: np.ndarray,
                   options: PairOptions) -> tuple[np.ndarray, np.ndarray]:
    """Transform one pair.

    Args:
        image: uint8 (height, width, channels).
        labels: uint8 (height, width), each divided by the label factor.
        draws: uint32 (draws_per_visit,).
        options: how.

    Returns:
        float32 (height', width', channels), and the labels likewise, (height', width', 1).

    Raises:
        DataError: the two differ in size, the crop does not fit, or the mean does not.
    """
    if tuple(n // options.label_factor for n in image.shape[:2]) != labels.shape:
        raise DataError(f"the image is {_by(image.shape[:2])}, its labels {_by(labels.shape)}")
    numbers = iter(draws.tolist())
    mirrored = options.mirror and next(numbers) % 2 == 1
    if options.scales:
        image, labels = _scaled(image, labels, options.scales[next(numbers) % len(options.scales)])
    mean = mean_of_channels(options.mean_values, image.shape[2])
    pixels = image.astype(np.float32)
    if options.pads:
        pixels, labels = _padded(pixels, labels, mean, options)
    if options.crop != (0, 0):
        offsets = _offsets(labels.shape, options, numbers)
        window = tuple(slice(o, o + n) for o, n in zip(offsets, options.crop, strict=True))
        pixels, labels = pixels[window], labels[window]
    if mirrored:
        pixels, labels = pixels[:, ::-1], labels[:, ::-1]
    if options.mean_image is not None:
        mean = options.mean_image
        if mean.shape != pixels.shape:
            raise DataError(f"the mean file is {_by(mean.shape)}, the image {_by(pixels.shape)} "
                            "(height, width, channels)")
    return (pixels - mean) * np.float32(options.scale), labels[:, :, None].astype(np.float32)


def _scaled(image: np.ndarray, labels: np.ndarray, factor: float) -> tuple[np.ndarray, np.ndarray]:
    if factor == 1:
        return image, labels
    cv2, (height, width) = opencv(), labels.shape
    size = int(np.float32(width) * np.float32(factor)), int(np.float32(height) * np.float32(factor))
    if min(size) < 1:
        raise DataError(f"nothing is left of an image of {_by(labels.shape)} at scale {factor:g}")
    wide = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR).reshape(size[1], size[0], -1)
    return wide, cv2.resize(labels, size, interpolation=cv2.INTER_NEAREST)


def _padded(pixels: np.ndarray, labels: np.ndarray, mean: np.ndarray,
            options: PairOptions) -> tuple[np.ndarray, np.ndarray]:
    height, width = (max(n, wanted) for n, wanted in zip(labels.shape, options.crop, strict=True))
    if (height, width) == labels.shape:
        return pixels, labels
    there = np.s_[: labels.shape[0], : labels.shape[1]]
    wide = np.broadcast_to(mean, (height, width, pixels.shape[2])).copy()
    ignored = np.full((height, width), options.ignore_label, np.int64)
    wide[there], ignored[there] = pixels, labels
    return wide, ignored


def _offsets(size: tuple[int, ...], options: PairOptions, numbers: Iterator[int]) -> list[int]:
    """The first row and column of the crop."""
    room = [n - wanted for n, wanted in zip(size, options.crop, strict=True)]
    if min(room) < 0:
        raise DataError(f"a crop of {_by(options.crop)} is larger than the image of {_by(size)}")
    if not options.crops_at_random:
        return [n // 2 for n in room]
    return [next(numbers) % (n + 1) for n in room]


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
