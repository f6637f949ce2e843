"""What is measured before a plan is made: messages that are as long, one beside the other, as a net's parameters."""

import random

import pytest

from scaffe.training.partition.speeds import cut_alike


def test_an_array_is_cut_as_parameters_are():
    assert cut_alike([10, 30, 0, 60], 1000) == [slice(0, 100), slice(100, 400), slice(400, 400), slice(400, 1000)]


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_a_net_without_parameters_leaves_the_array_whole(lengths):
    assert [place for place in cut_alike(lengths, 7) if place.start < place.stop] == [slice(0, 7)]


@pytest.mark.parametrize("seed", range(20))
def test_every_element_is_in_one_piece_that_is_within_one_of_its_share(seed):
    rng = random.Random(seed)
    lengths = [rng.choice((0, 1, rng.randrange(10**8))) for _ in range(rng.randrange(1, 60))] + [1]
    n_elems = rng.choice((1, 97, 8 << 20))
    places = cut_alike(lengths, n_elems)
    assert [0, *(place.stop for place in places)] == [*(place.start for place in places), n_elems]
    for length, place in zip(lengths, places, strict=True):
        assert abs(place.stop - place.start - n_elems * length / sum(lengths)) <= 1
