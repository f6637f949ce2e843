"""Batches of pixels that whoever takes them makes floats of: what they lack is exactly what readers would have done."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.data.feeds.feed import Plan, ReaderOptions
from scaffe.data.feeds.image_feed import image_feed
from scaffe.data.order.orders import InOrder
from scaffe.data.order.share import visits_in_training
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.proto import caffe_pb2
from tests.data.databases import datum, unlike_images, write

MEAN = np.random.default_rng(1).random((3, 8, 9), np.float32) * 100
OPTIONS = TransformOptions(0.5, mirror=True, crop_size=5, mean_image=MEAN, random_crop=True)


def batches_of(folder, n, n_batches, gives_pixels, options=OPTIONS, **reading):
    """Copies of a feed's first batches, and what it says is left to do."""
    source = LmdbSource(folder)
    plan = Plan(visits_in_training(n, 0, 1), n, InOrder(source.n_records), seed=5)
    feed = image_feed(source, plan, Transform(options),
                      options=ReaderOptions(2, gives_pixels=gives_pixels, **reading))
    found = [[array.copy() for array in feed.next()] for _ in range(n_batches)]
    feed.close()
    return found, feed.change


def changed(pixels, places, change):
    """Floats of pixels, one by one."""
    out = np.empty(pixels.shape, np.float32)
    for i, h, w, c in np.ndindex(pixels.shape):
        top, left, mirrored = places[i]
        mean = change.mean[(top + h) * change.row_stride + (left + w) * change.column_stride + c]
        to = pixels.shape[2] - 1 - w if mirrored else w
        out[i, h, to, c] = (np.float32(pixels[i, h, w, c]) - mean) * change.scale
    return out


def record_of(image, label):
    """A Datum, of floats where the image is."""
    if image.dtype == np.uint8:
        return datum(image, label)
    return caffe_pb2.Datum(**dict(zip(("channels", "height", "width"), image.shape, strict=True)), label=label,
                           float_data=image.reshape(-1).tolist()).SerializeToString()


@pytest.fixture
def colours(tmp_path):
    """A database of 13 images of three channels."""
    images = unlike_images(13, (3, 8, 9))
    return write(tmp_path / "colours", [(b"%02d" % i, datum(image, i)) for i, image in enumerate(images)])


@pytest.mark.parametrize("options", [OPTIONS, TransformOptions(2.0, mean_values=(3.5,)), TransformOptions(mirror=True)])
def test_pixels_lack_what_readers_would_have_done(colours, options):
    floats, nothing_left = batches_of(colours, 4, 6, False, options)
    pixels, change = batches_of(colours, 4, 6, True, options)
    assert nothing_left is None
    for (images, labels), (raw, raw_labels, places) in zip(floats, pixels, strict=True):
        assert (raw.dtype, raw.shape) == (np.uint8, images.shape)
        np.testing.assert_array_equal(changed(raw, places, change), images)
        np.testing.assert_array_equal(raw_labels, labels)


def test_a_batch_with_floats_among_its_records_is_floats(tmp_path):
    images = [*unlike_images(5, (3, 8, 9)), np.random.default_rng(0).random((3, 8, 9), np.float32)]
    folder = write(tmp_path / "mixed", [(b"%02d" % i, record_of(image, i)) for i, image in enumerate(images)])
    floats, _ = batches_of(folder, 2, 9, False)
    mixed, change = batches_of(folder, 2, 9, True)
    assert [len(batch) for batch in mixed] == [3, 3, 2] * 3  # records 4 and 5 are the third batch
    for (images, _), batch in zip(floats, mixed, strict=True):
        found = changed(batch[0], batch[2], change) if len(batch) == 3 else batch[0]
        np.testing.assert_array_equal(found, images)


def test_a_source_of_floats_gives_floats(tmp_path):
    images = np.random.default_rng(0).random((4, 3, 8, 9), np.float32)
    folder = write(tmp_path / "floats", [(b"%02d" % i, record_of(image, i)) for i, image in enumerate(images)])
    found, change = batches_of(folder, 2, 2, True)
    assert change is None
    assert [array.dtype for batch in found for array in batch] == [np.float32] * 4


def test_bad_records_are_passed_over(tmp_path):
    images = unlike_images(6, (3, 8, 9))
    records = [(b"%02d" % i, datum(image, i) if i != 3 else b"not a datum") for i, image in enumerate(images)]
    folder = write(tmp_path / "bad", records)
    floats, _ = batches_of(folder, 2, 3, False, n_bad_allowed=5)
    pixels, change = batches_of(folder, 2, 3, True, n_bad_allowed=5)
    for (images, labels), (raw, raw_labels, places) in zip(floats, pixels, strict=True):
        np.testing.assert_array_equal(changed(raw, places, change), images)
        np.testing.assert_array_equal(raw_labels, labels)
