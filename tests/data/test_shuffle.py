"""Shuffled orders: a permutation each pass, Caffe's own, wherever one starts."""

import numpy as np
import pytest

from scaffe.data.order.orders import shuffled, shuffled_files

# made with boost 1.74 (uniform_int over mt19937, seed 1701) and with GNU libstdc++'s random_shuffle in a fresh program
BOOST_TEN = [[7, 6, 8, 1, 2, 3, 5, 9, 4, 0]]
BOOST_THEN_THOUSAND = [288, 846, 303, 338, 970, 226, 839, 102, 536, 773]
LIBC_TEN = [[4, 3, 7, 8, 0, 5, 2, 1, 6, 9], [0, 5, 7, 8, 4, 3, 9, 2, 1, 6], [5, 7, 6, 3, 8, 4, 2, 0, 1, 9]]


def test_images_are_shuffled_as_by_boost():
    """Two passes of ten: the second goes on from the first, in items and in draws."""
    order = shuffled(10, 1701)
    assert order.records(np.arange(20)).reshape(2, 10).tolist() == [*BOOST_TEN, [0, 3, 1, 8, 7, 5, 6, 4, 9, 2]]


def test_rows_are_shuffled_as_by_the_c_library():
    assert shuffled_files([10]).records(np.arange(30)).reshape(3, 10).tolist() == LIBC_TEN


@pytest.mark.parametrize("order", [shuffled(1000, 3), shuffled_files([1000])], ids=["images", "rows"])
def test_each_pass_has_every_record_once(order):
    passes = order.records(np.arange(4000)).reshape(4, 1000)
    for one in passes:
        assert sorted(one) == list(range(1000))
    assert len({tuple(one) for one in passes}) == 4


def test_files_stay_together():
    n_rows = [5, 1, 7]
    order = shuffled_files(n_rows).records(np.arange(5 * 13)).reshape(5, 13)
    file_of = np.repeat([0, 1, 2], n_rows)
    firsts = set()
    for one in order:
        assert sorted(one) == list(range(13))
        files = file_of[one]
        assert np.count_nonzero(np.diff(files)) == 2
        firsts.add(files[0])
    assert len(firsts) > 1


@pytest.mark.parametrize("make", [lambda: shuffled(7, 5, skip=3), lambda: shuffled_files([4, 3])])
def test_any_visit_can_be_asked_for(make):
    """Far ahead, again, and back."""
    whole = make().records(np.arange(100))
    order = make()
    for visits in ([90, 95, 99], [96, 98], [0, 1], [50]):
        np.testing.assert_array_equal(order.records(np.array(visits)), whole[visits])


def test_skipping_leaves_out_the_first():
    whole = shuffled(7, 5).records(np.arange(23))
    np.testing.assert_array_equal(shuffled(7, 5, skip=3).records(np.arange(20)), whole[3:])
