"""The shortest iteration, against cases worked out by hand."""

import sys

import pytest

from tests.scaffe.runs import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from schedule import Traffic, hideable, shortest_iteration  # noqa: E402


def test_one_bucket_hides_nothing():
    assert shortest_iteration([1, 2], [3, 4], [Traffic(0, 5, 6)]) == 5 + 3 + 7 + 6
    assert hideable([1, 2], [3, 4], [Traffic(0, 5, 6)]) == 0


def test_messages_hide_behind_the_layers_before_and_after_them():
    # down: bucket of layer 0 until 1, of layer 2 until 11; layers 0 and 1 compute until 5, layer 2 from 11 to 13.
    # up: backward of 2 until 16, its message until 26; 1 and 0 until 24, bucket 0's message until 27.
    buckets = [Traffic(0, 1, 1), Traffic(2, 10, 10)]
    assert shortest_iteration([2, 2, 2], [4, 4, 3], buckets) == 27
    assert hideable([2, 2, 2], [4, 4, 3], buckets) == 17 + 22 - 27


@pytest.mark.parametrize("scale", [1, 1000])
def test_long_computing_hides_all_but_the_first_layers_messages(scale):
    buckets = [Traffic(0, 0.1, 0.2), Traffic(1, 1, 1), Traffic(3, 1, 1)]
    time = shortest_iteration([10 * scale] * 4, [20 * scale] * 4, buckets)
    assert time == pytest.approx(120 * scale + 0.1 + 0.2)
    assert hideable([10 * scale] * 4, [20 * scale] * 4, buckets) == pytest.approx(4.0)


def test_one_rank_has_nothing_to_hide():
    assert shortest_iteration([1, 2], [2, 1], []) == 6
    assert hideable([1, 2], [2, 1], []) == 0
