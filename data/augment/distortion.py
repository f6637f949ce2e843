"""Random colour distortion of images (weiliu89/caffe, im_transforms.cpp; Howard 2013)."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.data.records.decode import opencv
from scaffe.errors import DataError

RANGES = (("contrast_lower", "contrast_upper"), ("saturation_lower", "saturation_upper"))


def check_distortion(p: Any) -> None:
    """Raise DataError if a DistortionParameter message has an empty range."""
    for lower, upper in RANGES:
        low, high = getattr(p, lower), getattr(p, upper)
        if not 0 <= low <= high < np.inf:
            raise DataError(f"distort_param wants 0 <= {lower} <= {upper}, got {low:g} and {high:g}")
    for name in ("brightness_delta", "hue_delta"):
        if not 0 <= getattr(p, name) < np.inf:
            raise DataError(f"distort_param wants {name} at least 0, got {getattr(p, name):g}")


def distort(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Change brightness, contrast, saturation, hue and the order of channels, each with its probability.

    Contrast comes before saturation and hue or after them, as drawn.

    Args:
        p: the DistortionParameter message.
        image: uint8 (height, width, 3), blue first.
        rng: random numbers.

    Raises:
        DataError: the image does not have three channels of 8 bits.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise DataError(f"distort_param wants images of 3 channels of 8 bits, got {image.shape[2]} of {image.dtype}")
    contrast_first = rng.random() > 0.5
    image = _brightness(p, image, rng)
    if contrast_first:
        image = _contrast(p, image, rng)
    image = _saturation(p, image, rng)
    image = _hue(p, image, rng)
    if not contrast_first:
        image = _contrast(p, image, rng)
    if rng.random() < p.random_order_prob:
        image = image[:, :, rng.permutation(3)]
    return np.ascontiguousarray(image)


def _brightness(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if rng.random() < p.brightness_prob:
        return _mapped(image, 1, rng.uniform(-p.brightness_delta, p.brightness_delta))
    return image


def _contrast(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if rng.random() < p.contrast_prob:
        return _mapped(image, rng.uniform(p.contrast_lower, p.contrast_upper), 0)
    return image


def _saturation(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if rng.random() < p.saturation_prob:
        return _in_hsv(image, 1, rng.uniform(p.saturation_lower, p.saturation_upper), 0)
    return image


def _hue(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if rng.random() < p.hue_prob:
        return _in_hsv(image, 0, 1, rng.uniform(-p.hue_delta, p.hue_delta))
    return image


def _mapped(image: np.ndarray, factor: float, summand: float) -> np.ndarray:
    """Each value times factor plus summand, rounded and kept within 8 bits."""
    values = np.clip(np.rint(np.arange(256) * factor + summand), 0, 255).astype(np.uint8)
    mapped: np.ndarray = values[image]
    return mapped


def _in_hsv(image: np.ndarray, channel: int, factor: float, summand: float) -> np.ndarray:
    """The image with one of hue, saturation and value mapped."""
    cv2 = opencv()
    hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    hsv[:, :, channel] = _mapped(hsv[:, :, channel], factor, summand)
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR))
