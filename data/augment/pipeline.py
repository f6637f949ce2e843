"""The transformations that AnnotatedData applies to each image and its objects.

Source: weiliu89/caffe, branch ssd, annotated_data_layer.cpp and data_transformer.cpp.

In this order: distort colours; place the image into a larger one; crop the part that a sampler drew; resize; add noise;
crop; mirror; subtract the mean and scale. Between the steps that program writes images as JPEG and reads them again;
here they stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.data.augment.distortion import check_distortion, distort
from scaffe.data.augment.noise import add_noise
from scaffe.data.augment.objects import WHOLE, Objects, crop_objects, emit_rule, mirrored
from scaffe.data.augment.resize import (
    FIT_LARGE_SIZE_AND_PAD,
    FIT_SMALL_SIZE,
    check_resize,
    new_extent,
    rescale_objects,
    resize_image,
    resize_objects,
)
from scaffe.data.augment.samplers import check_sampler, draw_part, jittered_part
from scaffe.data.records.transform import mean_of_channels
from scaffe.errors import DataError

NO_EXPANSION = 1.01  # a ratio below this leaves the image as it is
MOST_EXPANSION = 100
Shape = tuple[int, int, int]  # channels, height, width


class Pipeline:
    """Transforms images. Threads may share one object.

    Args:
        transform: the TransformationParameter message.
        samplers: BatchSampler messages, by which a part of each image is drawn; none: the whole image.
        mean_image: float32 (channels, height, width) of the result; None: ``mean_value`` is used.
        is_training: whether crops are at random positions instead of the middle.
        jitter: without samplers, the largest part of width and height that a random crop leaves out (MobileNet-YOLO).

    Raises:
        DataError: options out of range, or that do not go together.
    """

    def __init__(self, transform: Any, samplers: Sequence[Any], mean_image: np.ndarray | None,
                 is_training: bool, jitter: float = 0.0) -> None:
        for name in ("crop_width", "crop_height", "scale_factors"):
            if getattr(transform, name):
                raise DataError(f"transform_param's {name} is for ImageSegData; AnnotatedData takes crop_w and crop_h")
        self._p, self._samplers, self._is_training = transform, list(samplers), is_training
        self._resizes, self._jitter = list(transform.resize_param), jitter
        chances = [resize.prob for resize in self._resizes]
        if len(chances) > 1 and not np.isclose(sum(chances), 1):
            raise DataError(f"several resize_param want prob that add up to 1, got {sum(chances):g}")
        if not 0 <= jitter < 1:
            raise DataError(f"wants yolo_data_jitter at least 0 and below 1, got {jitter:g}")
        self._mean_image = None if mean_image is None else np.moveaxis(mean_image, 0, -1)
        self._crop = (transform.crop_size,) * 2 if transform.crop_size else (transform.crop_h, transform.crop_w)
        if (self._crop[0] > 0) != (self._crop[1] > 0):
            raise DataError(f"crop_h and crop_w go together, got {self._crop[0]} and {self._crop[1]}")
        for sampler in self._samplers:
            check_sampler(sampler)
        if transform.HasField("distort_param"):
            check_distortion(transform.distort_param)
        for resize in self._resizes:
            check_resize(resize)
        if transform.HasField("expand_param"):
            ratio = transform.expand_param.max_expand_ratio
            if not 1 < ratio <= MOST_EXPANSION:
                raise DataError(f"wants max_expand_ratio above 1 and at most {MOST_EXPANSION}, got {ratio:g}")
            if mean_image is not None:
                raise DataError("expand_param fills with mean_value; mean_file must not be given")

    @property
    def fits_one_image(self) -> bool:
        """Whether images keep their shapes, so that a batch can have only one."""
        return any(resize.resize_mode == FIT_SMALL_SIZE for resize in self._resizes) and not self._crop[0]

    @property
    def n_sizes(self) -> int:
        """The number of sizes from which one is drawn."""
        return len(self._resizes)

    def draw_size(self, rng: np.random.Generator) -> int:
        """The number of a resize_param, each as likely as its ``prob``; 0 if there are not several."""
        chances = np.array([resize.prob for resize in self._resizes])
        return int(rng.choice(len(chances), p=chances / chances.sum())) if len(chances) > 1 else 0

    def extent(self, size: int) -> tuple[int, int]:
        """Height and width of all images whose ``resize_param`` has this number, if images of a batch have one size."""
        return self._crop if self._crop[0] else (self._resizes[size].height, self._resizes[size].width)

    def out_shape(self, shape: Shape, size: int = 0) -> Shape:
        """The shape of an image after all steps except random ones, which change it too if no size is given.

        Args:
            shape: (channels, height, width) as it is read.
            size: number of the resize_param.

        Raises:
            DataError: it is smaller than the crop.
        """
        extent = shape[1:]
        if self._resizes:
            extent = new_extent(self._resizes[size], extent)
        self._check_crop(extent)
        return (shape[0], *self._crop) if self._crop[0] else (shape[0], *extent)

    def apply(self, image: np.ndarray, objects: Objects, rng: np.random.Generator,
              size: int = 0) -> tuple[np.ndarray, Objects]:
        """Transform one image.

        Args:
            image: uint8 or float32 (height, width, channels).
            objects: in fractions of the image.
            rng: the image's own random numbers.
            size: number of the resize_param.

        Returns:
            float32 (height, width, channels), and the objects in fractions of it.

        Raises:
            DataError: the image does not suit a step.
        """
        if self._p.HasField("distort_param"):
            image = distort(self._p.distort_param, image, rng)
        image, objects = self._expanded(image, objects, rng)
        resize = self._resizes[size] if self._resizes else None
        image, objects = self._sampled(image, objects, rng, resize)
        image, objects = self._placed(image, objects, rng, resize)
        return self._shifted(image), objects

    def _expanded(self, image: np.ndarray, objects: Objects, rng: np.random.Generator) -> tuple[np.ndarray, Objects]:
        """The image at a random position in a larger one of the mean's colour."""
        p = self._p.expand_param
        if not self._p.HasField("expand_param") or rng.random() > p.prob or p.max_expand_ratio < NO_EXPANSION:
            return image, objects
        ratio = rng.uniform(1, p.max_expand_ratio)
        height, width, n_channels = image.shape
        n_rows, n_columns = int(height * ratio), int(width * ratio)
        top, left = rng.integers(max(1, n_rows - height)), rng.integers(max(1, n_columns - width))
        colour = np.clip(np.rint(self._mean_values(n_channels)), 0, 255)
        canvas = np.full((n_rows, n_columns, n_channels), colour, image.dtype)
        canvas[top:top + height, left:left + width] = image
        part = np.array([-left / width, -top / height, (n_columns - left) / width, (n_rows - top) / height], np.float32)
        return canvas, self._cropped(objects, part)

    def _sampled(self, image: np.ndarray, objects: Objects, rng: np.random.Generator,
                 resize: Any) -> tuple[np.ndarray, Objects]:
        """The part of the image that the samplers drew, or a random crop, or the whole image."""
        part = draw_part(self._samplers, objects.boxes, rng) if self._samplers else None
        if self._jitter and not self._samplers:
            part = jittered_part(self._jitter, resize is not None and resize.resize_mode == FIT_LARGE_SIZE_AND_PAD, rng)
        if part is None:
            return image, objects
        part = np.clip(part, np.float32(0), np.float32(1))
        height, width = image.shape[:2]
        left, top, right, bottom = part * np.array([width, height, width, height], np.float32)
        first_row, first_column = min(int(top), height - 1), min(int(left), width - 1)
        n_rows, n_columns = max(1, int(bottom - top)), max(1, int(right - left))
        cut = image[first_row:first_row + n_rows, first_column:first_column + n_columns]
        return cut, self._cropped(objects, part)

    def _placed(self, image: np.ndarray, objects: Objects, rng: np.random.Generator,
                resize: Any) -> tuple[np.ndarray, Objects]:
        """Resize the image, add noise, crop and mirror it."""
        p, extent = self._p, (image.shape[0], image.shape[1])
        if resize is not None:
            image, objects = resize_image(resize, image, rng), resize_objects(resize, extent, objects)
        if p.HasField("noise_param"):
            image = add_noise(p.noise_param, image, rng)
        is_mirrored = bool(p.mirror and rng.integers(2))
        image, part = self._cut(image, rng)
        objects = self._cropped(objects, part)
        if is_mirrored:
            image, objects = image[:, ::-1], mirrored(objects)
        if resize is not None:
            objects = rescale_objects(resize, extent, part, objects)
        return image, objects

    def _cut(self, image: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The image's crop, and its position as a part of the image."""
        height, width = image.shape[:2]
        self._check_crop((height, width))
        n_rows, n_columns = self._crop
        if not n_rows:
            return image, WHOLE
        top, left = (height - n_rows) // 2, (width - n_columns) // 2
        if self._is_training:
            top, left = int(rng.integers(height - n_rows + 1)), int(rng.integers(width - n_columns + 1))
        part = np.array([left / width, top / height, (left + n_columns) / width, (top + n_rows) / height], np.float32)
        return image[top:top + n_rows, left:left + n_columns], part

    def _check_crop(self, extent: tuple[int, int]) -> None:
        if self._crop[0] > extent[0] or self._crop[1] > extent[1]:
            raise DataError(f"the crop of {self._crop[0]} x {self._crop[1]} is larger than the image of "
                            f"{extent[0]} x {extent[1]}")

    def _cropped(self, objects: Objects, part: np.ndarray) -> Objects:
        """The objects in a part of the image that ``emit_constraint`` keeps."""
        has_rule = self._p.HasField("emit_constraint")
        return crop_objects(objects, part, emit_rule(self._p.emit_constraint, part) if has_rule else None)

    def _shifted(self, image: np.ndarray) -> np.ndarray:
        """Subtract the mean, then scale; float32."""
        if self._mean_image is not None and self._mean_image.shape != image.shape:
            found, wanted = (" x ".join(map(str, shape)) for shape in (self._mean_image.shape, image.shape))
            raise DataError(f"the mean file has {found} rows, columns and channels, the image has {wanted}")
        mean = self._mean_values(image.shape[2]) if self._mean_image is None else self._mean_image
        shifted: np.ndarray = (image - mean) * np.float32(self._p.scale)
        return shifted

    def _mean_values(self, n_channels: int) -> np.ndarray:
        return mean_of_channels(tuple(self._p.mean_value), n_channels)
