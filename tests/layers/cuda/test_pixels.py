"""Floats that a device makes of pixels: in float32 the bits of Caffe's transformation, written pixel by pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.data.order.share import Draws
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.source import Run
from scaffe.errors import LayerError
from scaffe.layers.kernels import cuda
from tests.layers.cuda.rig import double, every_dtype
from tests.reference.transform import transform_one

N, HEIGHT, WIDTH = 7, 9, 11


def run_of(images: np.ndarray, interleaved: bool) -> Run:
    """The images as a source gives them, behind three stray elements."""
    laid = np.moveaxis(images, 1, -1) if interleaved else images
    pixels = np.concatenate([np.zeros(3, np.uint8), laid.reshape(-1)])
    return Run(pixels, 3 + np.arange(N) * images[0].size, np.zeros(N), images.shape[1:], interleaved)


@every_dtype
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("channels", "crop", "mirror", "mean"), [
    (3, 6, True, "image"), (3, 6, True, "each"), (3, 0, True, "one"), (1, 0, False, "none"), (5, 4, False, "image"),
    (2, 9, True, "image")])
def test_crops_are_transformed_as_in_caffe(cp: Any, dtype: np.dtype, interleaved: bool, channels: int, crop: int,
                                           mirror: bool, mean: str) -> None:
    images = np.random.default_rng(channels).integers(0, 256, (N, channels, HEIGHT, WIDTH)).astype(np.uint8)
    values = {"one": (7.25,), "each": tuple(1.5 * c - 40 for c in range(channels))}.get(mean, ())
    image = np.random.default_rng(1).random(images.shape[1:], np.float32) * 200 if mean == "image" else None
    transform = Transform(TransformOptions(1 / 255, mirror, crop, values, image, random_crop=crop > 0))
    draws = Draws(3, transform.draws_per_visit).take(np.arange(N))
    _, height, width = transform.out_shape(images.shape[1:])
    crops, places = np.zeros((N, height, width, channels), np.uint8), np.zeros((N, 3), np.int32)
    transform.gather(run_of(images, interleaved), draws, crops, places)
    y = cp.empty(crops.size, dtype)
    cuda.pixels(transform.change(images.shape[1:])).run(cp.asarray(crops), cp.asarray(places), y)
    subtracted = image if image is not None else np.reshape(values, (-1, 1, 1)) if values else None
    for i in range(N):
        assert places[i, 2] == (mirror and draws[i, 0] % 2)
        corner = (int(draws[i, -2]) % (HEIGHT - crop + 1), int(draws[i, -1]) % (WIDTH - crop + 1)) if crop else ()
        window = (*corner, crop) if crop else None
        expected = np.moveaxis(transform_one(images[i], 1 / 255, subtracted, window, bool(places[i, 2])), 0, -1)
        got = double(y.get()).reshape(crops.shape)[i]
        if dtype == np.float64:
            np.testing.assert_allclose(got, expected, rtol=1e-6)
        else:
            np.testing.assert_array_equal(got, double(expected.astype(dtype)))


def test_a_top_of_another_length_is_refused(cp: Any) -> None:
    pixels = cuda.pixels(Transform(TransformOptions()).change((3, 4, 5)))
    with pytest.raises(LayerError, match="expected a blob of 120 elements, got 119"):
        pixels.run(cp.zeros((2, 4, 5, 3), np.uint8), cp.zeros((2, 3), np.int32), cp.empty(119, np.float32))
