"""Random deaths at every step, the recovery included: nobody hangs, nobody splits off, no reported update is lost."""

import itertools
from collections import Counter

import pytest

from scaffe.training.fault_tolerance.recovery_state_machine import Act, OutOfStep, Place, RecoveryStateMachine
from tests.scaffe.training.fault_tolerance.pretend_ranks import World


@pytest.mark.parametrize("n_ranks", [2, 3, 5, 8])
def test_whoever_is_left_ends_alike_whenever_others_die(n_ranks):
    met = Counter()
    for seed in range(300):
        world = World(n_ranks, 6, seed, n_deaths=1 + seed % n_ranks)
        world.run()
        met.update(world.acts_at_death)
        assert len({tuple(rank.values) for rank in world.ended}) == 1
        assert len(world.ended[0].values) == 6
        assert world.ended[0].values[: len(world.reported)] == world.reported
        for one, other in itertools.pairwise(world.made):  # each shrunk from the one before
            assert one.child is other
    if n_ranks > 2:
        assert set(met) >= {Act.TRAIN, Act.SHRINK, Act.TELL, Act.REBUILD, Act.MEET}


@pytest.mark.parametrize("n_ranks", [2, 3, 5, 8])
def test_ranks_that_update_by_themselves_go_on_together(n_ranks):
    met = Counter()
    for seed in range(200):
        world = World(n_ranks, 7, seed, n_deaths=1 + seed % n_ranks, in_step=False)
        world.run()
        met.update(world.acts_at_death)
        assert world.ended
        assert {len(rank.values) for rank in world.ended} == {7}
        for one, other in itertools.pairwise(world.made):
            assert one.child is other
    if n_ranks > 2:
        assert set(met) >= {Act.TRAIN, Act.SHRINK, Act.TELL, Act.REBUILD, Act.MEET}


@pytest.mark.parametrize(("n_ranks", "n_servers"), [(3, 1), (5, 2), (8, 3)])
def test_workers_and_servers_go_on_together(n_ranks, n_servers):
    met, n_nothing, n_unserved = Counter(), 0, 0
    for seed in range(300):
        world = World(n_ranks, 7, seed, n_deaths=1 + seed % n_ranks, in_step=False, n_servers=n_servers)
        world.run()
        met.update(world.acts_at_death)
        workers = [rank for rank in world.ended if not rank.is_server]
        assert bool(world.ended) != bool(world.left_with_nothing)  # a server that has ended knew of the workers' end
        assert all(rank.is_server for rank in world.left_with_nothing)
        assert {len(rank.values) for rank in workers} <= {7}
        for one, other in itertools.pairwise(world.made):
            assert one.child is other
        n_nothing += bool(world.left_with_nothing)
        n_unserved += bool(workers) and len(workers) == len(world.ended)
    assert n_nothing
    assert n_unserved
    assert n_ranks == 3 or set(met) >= {Act.TRAIN, Act.SHRINK, Act.TELL, Act.REBUILD, Act.MEET}


@pytest.mark.parametrize("in_step", [True, False])
@pytest.mark.parametrize("n_ranks", [2, 3, 5])
def test_lost_ranks_are_replaced_whoever_dies_meanwhile(n_ranks, in_step):
    met, n_whole, n_nothing = Counter(), 0, 0
    for seed in range(300):
        world = World(n_ranks, 9, seed, n_deaths=1 + seed % (n_ranks + 2), in_step=in_step, replaces=True)
        world.run()
        met.update(world.acts_at_death)
        assert bool(world.ended) != bool(world.left_with_nothing)
        n_nothing += bool(world.left_with_nothing)
        if in_step and world.ended:
            assert len({tuple(rank.values) for rank in world.ended}) == 1
            assert world.ended[0].values[: len(world.reported)] == world.reported
        assert {len(rank.values) for rank in world.ended} <= {9}
        for one, other in itertools.pairwise(world.made):
            assert one.child is other or one.larger is other
        n_whole += len(world.ended) == n_ranks
    assert n_whole > 50
    assert n_nothing < 10
    assert n_ranks == 2 or set(met) >= {Act.TRAIN, Act.SHRINK, Act.TELL, Act.REBUILD, Act.MEET, Act.JOIN, "guest"}


def test_nobody_dies_nobody_recovers():
    world = World(4, 5, 0, 0)
    world.run()
    assert len(world.made) == 1
    assert len(world.ended) == 4
    assert world.ranks[0].values == [f"0@{i}+1@{i}+2@{i}+3@{i}" for i in range(5)]


def test_a_rank_follows_one_that_is_ahead():
    machine = RecoveryStateMachine(7)
    machine.prepared()
    machine.lost()
    machine.done()
    assert machine.act is Act.TELL
    machine.done([Place(7, True), Place(8, False)])
    assert machine.act is Act.FOLLOW
    machine.done()
    assert (machine.act, machine.place) == (Act.REBUILD, Place(8, False))


def test_sums_that_nobody_has_used_are_thrown_away():
    machine = RecoveryStateMachine(7)
    machine.prepared()
    machine.lost()
    machine.done()
    machine.done([Place(7, True), Place(7, False)])
    assert (machine.act, machine.place) == (Act.REBUILD, Place(7, False))


@pytest.mark.parametrize(("is_ready", "furthest"), [(False, 8), (True, 9)])
def test_a_rank_too_far_ahead_is_a_defect(is_ready, furthest):
    machine = RecoveryStateMachine(7)
    machine.is_ready = is_ready
    machine.lost()
    machine.done()
    with pytest.raises(OutOfStep, match=f"has taken {furthest} steps, this one 7"):
        machine.done([machine.place, Place(furthest, False)])
