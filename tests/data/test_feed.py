"""Feeds from a database: what ranks and threads read together is what one would read alone."""

from itertools import islice

import numpy as np
import pytest

from scaffe.data.feeds.feed import Plan, ReaderOptions
from scaffe.data.feeds.image_feed import image_feed
from scaffe.data.order.orders import InOrder
from scaffe.data.order.share import batch_elems, visits_in_tests, visits_in_training
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.errors import DataError
from tests.data.databases import datum, unlike_images, write

RANDOM = TransformOptions(0.5, mirror=True, crop_size=3, random_crop=True)


def open_feed(folder, visits, n, options=RANDOM, n_threads=2):
    """A feed of batches of n."""
    source = LmdbSource(folder)
    plan = Plan(visits, n, InOrder(source.n_records), seed=5)
    return image_feed(source, plan, Transform(options), options=ReaderOptions(n_threads))


def take(feed, n_batches):
    """Copies of the next batches."""
    batches = [[array.copy() for array in feed.next()] for _ in range(n_batches)]
    feed.close()
    return batches


def alone(database, n_batches, batch=6, n_threads=0):
    """What one process reads."""
    return take(open_feed(database, visits_in_training(batch, 0, 1), batch, n_threads=n_threads), n_batches)


def test_shapes_and_contents(database, images):
    feed = open_feed(database, visits_in_training(8, 0, 1), 8, TransformOptions())
    assert feed.shapes == [(8, 1, 4, 5), (8,)]
    for i, (found, labels) in enumerate(take(feed, 9)):  # beyond the end of the 37 records
        records = np.arange(8 * i, 8 * i + 8) % 37
        np.testing.assert_array_equal(np.moveaxis(found, -1, 1), images[records])
        np.testing.assert_array_equal(labels, 3 * records)
        assert found.dtype == labels.dtype == np.float32


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_threads_change_nothing(database, n_threads):
    for expected, found in zip(alone(database, 20), alone(database, 20, n_threads=n_threads), strict=True):
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_ranks_change_nothing(database, ranks):
    """Crops and mirrorings included; 8 ranks are more than the batch has samples."""
    parts = []
    for rank in range(ranks):
        parts.append(take(open_feed(database, visits_in_training(6, rank, ranks), batch_elems(6, rank, ranks)), 4))
    for i, (images, labels) in enumerate(alone(database, 4)):
        for rank in range(ranks):
            np.testing.assert_array_equal(parts[rank][i][0], images[rank::ranks])
            np.testing.assert_array_equal(parts[rank][i][1], labels[rank::ranks])


@pytest.mark.parametrize("start", [1, 7])
def test_a_resumed_feed_goes_on_as_if_never_stopped(database, start):
    whole = alone(database, 12)[start:]
    rest = take(open_feed(database, visits_in_training(6, 0, 1, start), 6), 12 - start)
    for expected, found in zip(whole, rest, strict=True):
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_test_iterations_are_shared_out_whole(database):
    together = take(open_feed(database, visits_in_tests(4, 5, 0, 1), 4), 10)
    for rank, iterations in ((0, [0, 2, 4, 5, 7, 9]), (1, [1, 3, 6, 8])):
        part = take(open_feed(database, islice(visits_in_tests(4, 5, rank, 2), len(iterations)), 4), len(iterations))
        for iteration, (images, _) in zip(iterations, part, strict=True):
            np.testing.assert_array_equal(images, together[iteration][0])


def test_no_memory_is_taken_after_the_start(database):
    feed = open_feed(database, visits_in_training(6, 0, 1), 6)
    seen = {feed.next()[0].__array_interface__["data"][0] for _ in range(40)}
    feed.close()
    assert len(seen) <= 5


def test_memory_comes_from_the_given_place(database):
    taken = []

    def allocate(n_elems):
        taken.append(np.empty(n_elems, np.float32))
        return taken[-1]

    source = LmdbSource(database)
    plan = Plan(visits_in_training(2, 0, 1), 2, InOrder(source.n_records))
    feed = image_feed(source, plan, Transform(TransformOptions()), options=ReaderOptions(allocate=allocate))
    images, labels = feed.next()
    feed.close()
    assert all(any(np.shares_memory(array, memory) for memory in taken) for array in (images, labels))


@pytest.fixture
def unlike(tmp_path):
    """A database of two shapes."""
    small, large = unlike_images(1, (1, 4, 5))[0], unlike_images(1, (1, 6, 7))[0]
    return write(tmp_path / "unlike", [(b"a", datum(small, 1)), (b"b", datum(large, 2))])


def test_batches_of_one_may_have_any_shape(unlike):
    feed = open_feed(unlike, visits_in_training(1, 0, 1), 1, TransformOptions())
    assert [batch[0].shape for batch in take(feed, 3)] == [(1, 4, 5, 1), (1, 6, 7, 1), (1, 4, 5, 1)]


def test_cropped_images_may_have_any_shape(unlike):
    feed = open_feed(unlike, visits_in_training(2, 0, 1), 2, TransformOptions(crop_size=4))
    assert take(feed, 1)[0][0].shape == (2, 4, 4, 1)


@pytest.mark.parametrize("n_threads", [0, 2])
def test_unlike_images_in_a_batch_are_told(unlike, n_threads):
    feed = open_feed(unlike, visits_in_training(2, 0, 1), 2, TransformOptions(), n_threads)
    with pytest.raises(DataError, match="record 'b' is 1 x 6 x 7, the batch's first image is 1 x 4 x 5"):
        feed.next()


def test_a_crop_too_large_is_told_at_the_start(database):
    with pytest.raises(DataError, match="record '00000000': crop_size 5 is larger than the image of 4 x 5"):
        open_feed(database, visits_in_training(2, 0, 1), 2, TransformOptions(crop_size=5))
