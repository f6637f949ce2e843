"""Adds noise to images (weiliu89/caffe, im_transforms.cpp, ApplyNoise)."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.data.records.decode import opencv
from scaffe.errors import DataError

LEVEL = 64  # width of the intervals of values that posterising makes one
CLIP_LIMIT = 4


def add_noise(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add noise to an image as a NoiseParameter message says, in that program's order.

    Args:
        p: the message. Its ``prob`` has no effect, as there.
        image: uint8 (height, width, channels), blue first.
        rng: random numbers.

    Returns:
        (height, width, channels), uint8; with ``convert_to_lab`` float32.

    Raises:
        DataError: a step does not work with the image's number of channels.
    """
    try:
        spoiled = _colours(p, _sharpness(p, image), rng)
    except opencv().error:
        raise DataError(f"noise_param does not suit images of {image.shape[2]} channel(s) of {image.dtype}") from None
    return spoiled.reshape(*image.shape[:2], -1)


def _sharpness(p: Any, image: np.ndarray) -> np.ndarray:
    """From decolorize to erode."""
    cv2 = opencv()
    if p.decolorize:
        image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    if p.gauss_blur:
        image = cv2.GaussianBlur(image, (7, 7), 1.5)
    if p.hist_eq:
        image = _on_brightness(image, cv2.equalizeHist)
    if p.clahe:
        image = _on_brightness(image, cv2.createCLAHE(CLIP_LIMIT).apply)
    if p.jpeg > 0:
        quality = [cv2.IMWRITE_JPEG_QUALITY, int(min(p.jpeg, 100))]
        image = cv2.imdecode(cv2.imencode(".jpg", image, quality)[1], cv2.IMREAD_COLOR)
    if p.erode:
        image = cv2.erode(image, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3), (1, 1)))
    return image


def _colours(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """From posterize to the colour spaces."""
    cv2 = opencv()
    image = image.reshape(*image.shape[:2], -1)
    if p.posterize:
        image = (np.arange(256) // LEVEL * LEVEL + LEVEL // 2).astype(np.uint8)[image]
    if p.inverse:
        image = 255 - image
    if p.saltpepper:
        image = _salted(p.saltpepper_param, image, rng)
    if p.convert_to_hsv:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    if p.convert_to_lab:
        image = cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_BGR2LAB)
    return image


def _on_brightness(image: np.ndarray, function: Any) -> np.ndarray:
    """Apply a function to the brightness of a coloured image, or to a grey one."""
    cv2 = opencv()
    if image.ndim == 2 or image.shape[2] == 1:
        return np.asarray(function(image.reshape(image.shape[:2])))
    planes = cv2.cvtColor(image, cv2.COLOR_BGR2YCrCb)
    planes[:, :, 0] = function(np.ascontiguousarray(planes[:, :, 0]))
    return np.asarray(cv2.cvtColor(planes, cv2.COLOR_YCrCb2BGR))


def _salted(p: Any, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Set a fraction of the pixels, at random places, to one value a channel."""
    height, width, n_channels = image.shape
    if len(p.value) not in (1, n_channels) or not all(0 <= v < 256 for v in p.value) or not 0 <= p.fraction <= 1:
        raise DataError(f"saltpepper_param wants a fraction from 0 to 1 and 1 or {n_channels} values from 0 to 255, "
                        f"got {p.fraction:g} and {[round(v, 6) for v in p.value]}")
    n_pixels = int(np.float32(p.fraction) * width * height)
    image = image.copy()
    image[rng.integers(height, size=n_pixels), rng.integers(width, size=n_pixels)] = list(p.value)
    return image
