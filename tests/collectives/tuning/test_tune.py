"""What `tune` makes of its measurements, without MPI."""

import pytest

from scaffe.collectives.tuning.tune import Race, choices, fewest, fewest_changes
from scaffe.collectives.tuning.tune import main as tune
from scaffe.errors import UsageError


def test_tune_refuses_a_place_that_is_not_there():
    with pytest.raises(UsageError, match="^tune: -memory takes shared, host, device, not 'disk'; see scaffe tune -h$"):
        tune(["-memory", "host,disk"])


def test_tune_puts_borders_between_the_lengths_it_measured():
    found = choices([(4, "mpi", 1), (16, "mpi", 1), (64, "M", 1), (256, "M", 2)])
    assert [(choice.max_bytes, choice.algorithm, choice.chunk_bytes) for choice in found] == [
        (32, "mpi", 1), (128, "M", 1), (None, "M", 2)]


def test_tune_keeps_a_candidate_for_as_many_lengths_as_it_is_as_good_as_the_fastest():
    mpi, shared, ring = ("mpi", 1), ("M", 1), ("R", 1)
    figures = [{mpi: 1.0, shared: 3.0, ring: 0.99}, {mpi: 1.0, shared: 2.0, ring: 0.97},
               {mpi: 1.04, shared: 1.0, ring: 1.5}, {mpi: 1.2, shared: 1.03, ring: 1.0},
               {mpi: 1.0, shared: 1.04, ring: 1.0}]
    assert fewest_changes(figures) == [mpi, mpi, mpi, shared, shared]
    assert fewest_changes([{mpi: 1.0, ring: 1.2}, {ring: 1.0, mpi: 1.2}]) == [mpi, ring]
    assert fewest_changes([]) == []


def test_the_race_starts_with_what_the_length_allows():
    race = Race(["mpi", "M", "C"], [60, 1000])
    assert race.starters(60) == [("mpi", 60), ("M", 60), ("C", 60)]
    assert race.starters(1000) == [("mpi", 60), ("M", 60), ("C", 60)]
    assert race.starters(1001) == [("mpi", 60), ("M", 60), ("C", 60), ("C", 1000)]


def test_the_fewest_multiprocessors_that_are_as_fast_as_more():
    assert fewest({8: 9.0, 16: 4.19, 32: 4.0, 64: 4.1}) == 16
    assert fewest({8: 9.0, 16: 4.3, 32: 4.0}) == 32


def test_who_loses_two_long_lengths_running_is_out():
    race, slow, fast = Race(["B", "C"], [60]), ("B", 60), ("C", 60)
    for seconds, is_long in ((10.0, False), (10.0, False), (3.1, True), (3.0, True), (3.1, True)):
        race.judge({slow: seconds, fast: 1.0}, is_long)
        assert race.starters(5) == [slow, fast]
    race.judge({slow: 3.1, fast: 1.0}, is_long=True)
    assert race.starters(5) == [fast]
