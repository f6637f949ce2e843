"""Transformations of whole batches against one written pixel by pixel."""

import numpy as np
import pytest

from scaffe.data.order.share import Draws
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.source import Run
from scaffe.errors import DataError
from tests.data.databases import unlike_images
from tests.reference.transform import transform_one

N, HEIGHT, WIDTH = 5, 9, 11


def make_run(images, interleaved):
    """A run over the images, laid one after another behind three stray elements."""
    laid = np.moveaxis(images, 1, -1) if interleaved else images
    pixels = np.concatenate([np.zeros(3, images.dtype), laid.reshape(-1)])
    starts = 3 + np.arange(len(images)) * images[0].size
    return Run(pixels, starts, np.zeros(len(images)), images.shape[1:], interleaved)


def apply(options, images, interleaved=False, draws=None):
    """The transformed batch in Caffe's order."""
    transform = Transform(options)
    draws = np.zeros((len(images), transform.draws_per_visit), np.uint32) if draws is None else draws
    channels, height, width = transform.out_shape(images.shape[1:])
    out = np.full((len(images), height, width, channels), np.nan, np.float32)
    transform.apply(make_run(images, interleaved), draws, out)
    return np.moveaxis(out, -1, 1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("crop", [0, 6])
@pytest.mark.parametrize("mean", ["none", "one", "each", "image"])
def test_pixels_come_out_as_in_caffe(interleaved, channels, crop, mean):
    images = unlike_images(N, (channels, HEIGHT, WIDTH), seed=channels)
    values = {"none": (), "one": (7.25,), "each": tuple(1.5 * c - 40 for c in range(channels)), "image": ()}[mean]
    image = np.random.default_rng(1).random(images.shape[1:], np.float32) if mean == "image" else None
    options = TransformOptions(1 / 256, True, crop, values, image, random_crop=True)
    draws = Draws(3, 1 + 2 * bool(crop)).take(np.arange(N))
    assert len(set(draws[:, 0] % 2)) == 2  # both sides of the mirror
    found = apply(options, images, interleaved, draws)
    subtracted = image if mean == "image" else np.reshape(values, (-1, 1, 1)) if values else None
    for i in range(N):
        window = (int(draws[i, 1]) % (HEIGHT - 5), int(draws[i, 2]) % (WIDTH - 5), crop) if crop else None
        expected = transform_one(images[i], 1 / 256, subtracted, window, bool(draws[i, 0] % 2))
        np.testing.assert_array_equal(found[i], expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mean", [False, True])
def test_without_crop_and_mirror(channels, mean):
    images = unlike_images(N, (channels, HEIGHT, WIDTH))
    image = np.random.default_rng(1).random(images.shape[1:], np.float32) if mean else None
    for interleaved in (False, True):
        found = apply(TransformOptions(0.5, mean_image=image), images, interleaved)
        np.testing.assert_array_equal(found, [transform_one(one, 0.5, image) for one in images])


def test_tests_take_the_middle():
    images = unlike_images(N, (3, HEIGHT, WIDTH))
    found = apply(TransformOptions(crop_size=4), images)
    np.testing.assert_array_equal(found, images[:, :, 2:6, 3:7])


def test_floats_are_transformed_alike():
    images = np.random.default_rng(0).normal(size=(N, 3, HEIGHT, WIDTH)).astype(np.float32)
    found = apply(TransformOptions(2.0, mean_values=(0.5,)), images)
    np.testing.assert_array_equal(found, [transform_one(one, 2.0, np.float32(0.5)) for one in images])


def test_every_window_can_be_drawn():
    draws = Draws(0, 2).take(np.arange(400))
    image = np.arange(HEIGHT * WIDTH, dtype=np.uint8).reshape(1, 1, HEIGHT, WIDTH)
    images = np.broadcast_to(image, (400, 1, HEIGHT, WIDTH))
    corners = apply(TransformOptions(crop_size=7, random_crop=True), images, draws=draws)[:, 0, 0, 0]
    assert set(corners) == {WIDTH * top + left for top in range(3) for left in range(5)}


@pytest.mark.parametrize(("options", "message"), [
    ({"crop_size": 10}, "crop_size 10 is larger than the image of 9 x 11"),
    ({"mean_values": (1.0, 2.0)}, "1 mean_value or one for each of 3 channel"),
    ({"mean_image": np.zeros((3, 9, 9), np.float32)}, "mean file has the shape 3 x 9 x 9, the image has 3 x 9 x 11"),
])
def test_what_does_not_fit_is_told(options, message):
    with pytest.raises(DataError, match=message):
        Transform(TransformOptions(**options)).out_shape((3, HEIGHT, WIDTH))


def test_two_means_are_one_too_many():
    with pytest.raises(DataError, match="not both"):
        TransformOptions(mean_values=(1.0,), mean_image=np.zeros((1, 1, 1), np.float32))
