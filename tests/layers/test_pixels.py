"""What the CPU makes of pixels: the bits of a reader that gives floats, on one and two threads."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.data.order.share import Draws
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.source import Run
from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.threads import parts

N, HEIGHT, WIDTH = 7, 9, 11


def run_of(images, interleaved):
    """The images as a source gives them, behind three stray elements."""
    laid = np.moveaxis(images, 1, -1) if interleaved else images
    stray = np.concatenate([np.zeros(3, np.uint8), laid.reshape(-1)])
    return Run(stray, 3 + np.arange(N) * images[0].size, np.zeros(N), images.shape[1:], interleaved)


def gathered(transform, run, draws):
    """Crops, and where each was."""
    channels, height, width = transform.out_shape(run.shape)
    crops, places = np.zeros((N, height, width, channels), np.uint8), np.zeros((N, 3), np.int32)
    transform.gather(run, draws, crops, places)
    return crops, places


@pytest.fixture(params=[1, 2])
def threads(request, monkeypatch):
    """Several ranges even of few elements."""
    monkeypatch.setattr("scaffe.layers.kernels.cpu.elementwise.LEAST_ELEMS", 1)
    parts.set_parts(request.param)
    yield
    parts.set_parts(1)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("channels", "crop", "mirror", "mean"), [
    (3, 6, True, "image"), (3, 6, True, "each"), (3, 0, True, "one"), (1, 0, False, "none"), (3, 0, False, "each"),
    (5, 4, False, "image"), (2, 9, True, "image"), (3, 0, False, "image")])
def test_pixels_become_the_readers_floats(dtype, interleaved, channels, crop, mirror, mean):
    kind = np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)
    images = np.random.default_rng(channels).integers(0, 256, (N, channels, HEIGHT, WIDTH)).astype(np.uint8)
    values = {"one": (7.25,), "each": tuple(1.5 * c - 40 for c in range(channels))}.get(mean, ())
    image = np.random.default_rng(1).random(images.shape[1:], np.float32) * 200 if mean == "image" else None
    transform = Transform(TransformOptions(1 / 255, mirror, crop, values, image, random_crop=crop > 0))
    draws, run = Draws(3, transform.draws_per_visit).take(np.arange(N)), run_of(images, interleaved)
    crops, places = gathered(transform, run, draws)
    floats, got = np.empty(crops.shape, np.float32), np.zeros(crops.size, kind)
    transform.apply(run, draws, floats)
    cpu.pixels(transform.change(run.shape)).run(crops, places, got)
    if dtype == "float64":
        np.testing.assert_allclose(got, floats.reshape(-1), rtol=1e-6)
    else:
        np.testing.assert_array_equal(got.astype(np.float32), floats.astype(kind).reshape(-1).astype(np.float32))


def test_images_of_other_sizes_follow():
    pixels = cpu.pixels(Transform(TransformOptions(mean_values=(1, 2, 3))).change((3, 4, 5)))
    for width in (5, 9, 4):
        got = np.empty(12 * width, np.float32)
        pixels.run(np.full((1, 4, width, 3), 9, np.uint8), np.zeros((1, 3), np.int32), got)
        np.testing.assert_array_equal(got, [8, 7, 6] * (4 * width))


def test_a_top_of_another_length_is_refused():
    pixels = cpu.pixels(Transform(TransformOptions()).change((3, 4, 5)))
    with pytest.raises(LayerError, match="expected a blob of 120 elements, got 119"):
        pixels.run(np.zeros((2, 4, 5, 3), np.uint8), np.zeros((2, 3), np.int32), np.zeros(119, np.float32))
