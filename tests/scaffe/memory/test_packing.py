"""Offsets of arrays in one memory, against all orders in which they can be placed."""

import itertools
import random

import pytest

from scaffe.memory.plan.layout import packed


def random_arrays(seed, n):
    rng = random.Random(seed)
    spans = [tuple(sorted((rng.randint(0, 8), rng.randint(0, 8)))) for _ in range(n)]
    return [rng.randint(1, 20) for _ in range(n)], [[span] if rng.random() < 0.9 else [] for span in spans]


def together(lengths, intervals):
    """The most bytes that are there in one step."""
    return max(sum(n for n, spans in zip(lengths, intervals, strict=True)
                   if any(first <= step <= final for first, final in spans)) for step in range(9))


def lowest(order, lengths, intervals):
    """The length where each array in turn lies as low as those placed before allow, byte by byte."""
    taken = {step: set() for step in range(9)}
    for number in order:
        steps = {step for first, final in intervals[number] for step in range(first, final + 1)}
        start = next(at for at in itertools.count()
                     if all(taken[step].isdisjoint(range(at, at + lengths[number])) for step in steps))
        for step in steps:
            taken[step].update(range(start, start + lengths[number]))
    return max((max(each) + 1 for each in taken.values() if each), default=0)


@pytest.mark.parametrize("seed", range(40))
def test_arrays_that_are_there_together_do_not_overlap_and_no_order_is_much_better(seed):
    lengths, intervals = random_arrays(seed, 6)
    bound = together(lengths, intervals)
    offsets, n_bytes = packed(lengths, intervals, bound)
    for step in range(9):
        there = sorted((offsets[i], offsets[i] + lengths[i]) for i, spans in enumerate(intervals)
                       if any(first <= step <= final for first, final in spans))
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(there))
        assert not there or there[-1][1] <= n_bytes
    best = min(lowest(order, lengths, intervals) for order in itertools.permutations(range(6)))
    assert bound <= n_bytes <= 1.05 * best


def test_where_the_largest_first_leave_gaps_others_are_tried_until_all_fits():
    seed = next(seed for seed in range(1000) if packed(*random_arrays(seed, 7), 10**9)[1]
                > together(*random_arrays(seed, 7)) == packed(*random_arrays(seed, 7), 0)[1])
    lengths, intervals = random_arrays(seed, 7)
    roomy, bound = packed(lengths, intervals, 10**9)[1], together(lengths, intervals)
    largest = sorted((i for i, spans in enumerate(intervals) if spans), key=lambda i: -lengths[i])
    assert roomy == lowest(largest, lengths, intervals)
    assert packed(lengths, intervals, roomy)[1] == roomy
    assert packed(lengths, intervals, bound)[1] == bound


def test_nothing_needs_no_memory():
    assert packed([], [], 0) == ([], 0)
    assert packed([7], [[]], 0) == ([0], 0)
