"""Checkpoints of nets drawn by hand, and what the search makes of them where greedy choice from all in memory fails."""

import pytest

from scaffe.memory.plan.checkpoints import checkpoints, dominators, keeping
from scaffe.memory.plan.greedy import needs, within
from scaffe.memory.plan.placements import PLACEMENTS, WHILE_IDLE
from scaffe.memory.plan.plan import Choice, MemoryTooSmallError, resident_bytes
from scaffe.memory.plan.schedule import predict, schedule
from scaffe.memory.problem.iteration import Bandwidth, Iteration, Recompute, Tensor
from tests.scaffe.memory.test_plans import chain


def residual(n_blocks, inside=3):
    """Blocks of some layers one after another, whose last one also reads the block's input. By layer its output alone;
    backward of a layer reads its inputs and its output."""
    reads, n = [()], n_blocks * inside + 1
    for block in range(n_blocks):
        first = block * inside
        reads += [*((first + i,) for i in range(inside - 1)), (first + inside - 1, first)]
    last = 2 * n - 1
    parts = []
    for i in range(n):
        users = [i, *(j for j in range(n) if i in reads[j])]
        backward = tuple(sorted(last - j for j in users))
        parts.append(Tensor(f"y{i}", 8, tuple(users), backward, Recompute((i,), reads[i])))
    return Iteration(tuple(parts), (1.0,) * n + (2.0,) * n)


@pytest.mark.parametrize(("n_blocks", "inside"), [(1, 2), (3, 3), (5, 4)])
def test_the_dominators_of_a_residual_net_are_its_blocks_outputs(n_blocks, inside):
    assert dominators(residual(n_blocks, inside)) == [block * inside for block in range(n_blocks + 1)]


def test_all_of_a_chain_are_dominators():
    assert dominators(chain(5)) == [0, 1, 2, 3, 4]


def test_sets_of_checkpoints_are_every_kth_of_them_and_of_all_and_none_comes_twice():
    found = list(checkpoints(residual(4)))
    assert len(found) == len(set(found))
    assert {frozenset((0, 3, 6, 9, 12)), frozenset((0, 6, 12)), frozenset((3, 9))} <= {*found}
    assert frozenset(range(1, 13, 2)) in found


def test_what_is_no_checkpoint_is_recomputed_where_it_can_be():
    iteration = residual(2)
    assert keeping(iteration, (0, 3)) == [Choice.KEEP, *[Choice.RECOMPUTE] * 2, Choice.KEEP, *[Choice.RECOMPUTE] * 3]


def test_blocks_outputs_alone_stay_where_the_limit_has_room_for_no_more():
    """In memory at once at most: the outputs, what one block computes again, and that is all (Chen et al., 2016)."""
    iteration = residual(8)
    limit = 8 * (8 + 1 + 2)
    assert max(needs(iteration, [Choice.KEEP] * 25).n_bytes) == 8 * 25
    plan = PLACEMENTS["recompute"](iteration, limit, Bandwidth(1.0, 1.0))
    resident_bytes(iteration, plan, limit)
    assert predict(iteration, plan, Bandwidth(1.0, 1.0)).recompute <= 8 * 2
    with pytest.raises(MemoryTooSmallError):
        PLACEMENTS["recompute"](iteration, 8 * 3, Bandwidth(1.0, 1.0))


@pytest.mark.parametrize(("n_blocks", "inside"), [(4, 3), (4, 4), (6, 4)])
def test_no_more_arrays_move_than_are_too_many_beside_the_checkpoints(n_blocks, inside):
    """Two are, where a block's backward computes the block again. To drop a block's output as well would cost little
    by itself, but two blocks would be computed again at once."""
    iteration = residual(n_blocks, inside)
    start = keeping(iteration, dominators(iteration))
    limit = max(needs(iteration, start).n_bytes) - 2 * 8
    for price in WHILE_IDLE:
        choices = within(iteration, limit, Bandwidth(1.0, 1.0, at_once=True), price, start)
        assert max(needs(iteration, choices).n_bytes) <= limit
        assert choices.count(Choice.MOVE) <= 2


def test_memory_is_lent_for_what_moves_take_before_it_is_lent_for_more():
    """The first array is out when step 2 begins, the second when it ends; there is room for one of them in it."""
    parts = (Tensor("a", 8, (0,), (7,)), Tensor("b", 8, (1,), (6,)), Tensor("k", 20, (2,), (5,)))
    iteration = Iteration(parts, (1.0,) * 8)
    plan = schedule(iteration, [Choice.MOVE, Choice.MOVE, Choice.KEEP], 28, Bandwidth(8.0, 8.0, at_once=True))
    resident_bytes(iteration, plan, 28)
    assert predict(iteration, plan, Bandwidth(8.0, 8.0, at_once=True)).waited == 0
