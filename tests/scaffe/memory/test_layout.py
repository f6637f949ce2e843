"""Where the tensors of a plan lie: offsets in one memory, plans that fit with them, and cuts between recordings."""

import itertools
import random

import pytest

from scaffe.mapped_memory import rounded
from scaffe.memory.plan.greedy import least_bytes
from scaffe.memory.plan.layout import arrangement, fitted_together, least_together, packed
from scaffe.memory.plan.placements import PLACEMENTS
from scaffe.memory.plan.plan import Action, Choice, Do, MemoryTooSmallError, Plan
from scaffe.memory.problem.iteration import Bandwidth
from scaffe.memory.run.limited_net import cuts
from scaffe.nets.steps import Steps
from tests.scaffe.memory.test_plans import chain, random_iteration, with_state


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


BANDWIDTH = Bandwidth(10.0, 8.0)


def holders(iteration, plan):
    """For each step the arrays that have their memory then: those in use, and those on their way."""
    has = {number for number, part in enumerate(iteration.tensors)
           if part.is_persistent and plan.choices[number] is not Choice.MOVE}
    for step, (before, after) in enumerate(zip(plan.before, plan.after, strict=True)):
        for action in before:
            if action.do in (Do.FETCH, Do.RECOMPUTE):
                has.add(action.tensor)
            elif action.do in (Do.OFFLOADED, Do.DROP):
                has.discard(action.tensor)
        has |= {number for number, part in enumerate(iteration.tensors)
                if step in (part.forward or part.backward)[:1] and not part.is_persistent}
        yield step, set(has)
        has -= {action.tensor for action in after if action.do in (Do.OFFLOADED, Do.DROP)}


@pytest.mark.parametrize("seed", range(40))
def test_arrays_that_have_memory_in_one_step_do_not_overlap(seed):
    iteration = with_state(random_iteration(seed), seed, seed % 3)
    least, whole = least_together(iteration), sum(part.n_bytes for part in iteration.tensors)
    for limit in {least, random.Random(seed).randint(least, max(least, whole))}:
        plan, layout = fitted_together(iteration, PLACEMENTS["auto"], limit, BANDWIDTH)
        assert layout.n_bytes <= limit
        assert layout.others_bytes == 0
        for step, has in holders(iteration, plan):
            places = sorted((layout.offsets[i], layout.offsets[i] + iteration.tensors[i].n_bytes) for i in has)
            assert all(end <= start for (_, end), (start, _) in zip(places, places[1:], strict=False)), step
            assert not places or places[-1][1] <= limit


def test_the_least_is_that_of_the_plan_that_moves_everything_with_its_gaps():
    iteration = chain(5)
    most = rounded(sum(part.n_bytes for part in iteration.tensors))
    assert least_bytes(iteration) <= least_together(iteration) <= most
    with pytest.raises(MemoryTooSmallError):
        fitted_together(iteration, PLACEMENTS["auto"], least_bytes(iteration) - 1, BANDWIDTH)


def test_without_a_limit_everything_lies_where_lifetimes_allow():
    iteration = chain(4)
    plan, layout = fitted_together(iteration, PLACEMENTS["auto"], 10**9, BANDWIDTH)
    assert set(plan.choices) == {Choice.KEEP}
    assert layout == arrangement(iteration, plan, len(iteration.tensors), 10**9)


def groups(rng, n_layers):
    """Some of the layers run in one pass with those before them."""
    edges = [0, *sorted(rng.sample(range(1, n_layers), rng.randint(0, n_layers - 1))), n_layers]
    return [range(start, stop) for start, stop in zip(edges, edges[1:], strict=False) for _ in range(start, stop)]


@pytest.mark.parametrize("seed", range(30))
def test_stretches_between_cuts_have_no_moves_inside(seed):
    """But in the last pass of a stretch backward, whose work is done in its first step."""
    rng, iteration = random.Random(seed), random_iteration(seed)
    n = len(iteration.seconds) // 2
    plan = PLACEMENTS["move"](iteration, least_bytes(iteration) + rng.randint(0, 10), BANDWIDTH)
    forward, backward = groups(rng, n), groups(rng, n)
    found = cuts(plan, forward, backward)
    assert all(index in (0, n) or forward[index].start == index for index in found.forward)
    assert all(index in (0, n) or backward[index].start == index for index in found.backward)
    moving = (Do.OFFLOAD, Do.OFFLOADED, Do.FETCH, Do.FETCHED)

    def moves(actions):
        return any(action.do in moving for action in actions)

    for first, stop in stretches(found.forward, n):
        heads = {forward[i].start for i in range(first, stop)}
        last = max(heads)
        assert not any(moves(plan.before[i]) for i in range(forward[first].stop, stop))
        assert not any(moves(plan.after[i]) for i in range(first, last))
    for first, stop in stretches(found.backward, n):
        last_pass, steps = backward[first], [2 * n - 1 - i for i in range(stop - 1, first - 1, -1)]
        for i, step in zip(range(stop - 1, first - 1, -1), steps, strict=True):
            inner = i in last_pass and i != last_pass[-1]
            assert inner or step == steps[0] or not moves(plan.before[step])
            assert i in last_pass or not moves(plan.after[step])


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_a_stretch_ends_with_the_pass_behind_which_a_layer_is_updated(seed):
    rng, iteration = random.Random(seed), random_iteration(seed)
    n = len(iteration.seconds) // 2
    plan = PLACEMENTS["move"](iteration, least_bytes(iteration), BANDWIDTH)
    forward, backward = groups(rng, n), groups(rng, n)
    usual = cuts(plan, forward, backward)
    for index in range(n):
        found = cuts(plan, forward, backward, {2 * n - 1 - index})
        assert found.forward == usual.forward
        assert found.backward == usual.backward | {backward[index].start}


@pytest.mark.parametrize(("where", "do", "expected"), [
    ("before", Do.OFFLOADED, 2), ("after", Do.OFFLOAD, 1), ("before", Do.DROP, None)])
@pytest.mark.parametrize("inner", [0, 1])
def test_a_layer_whose_backward_has_two_steps_is_cut_at_its_edges(where, do, expected, inner):
    """Layer 1 of three, in steps 4 and 5: what either waits for is there ahead of both."""
    actions = {side: [()] * 7 for side in ("before", "after")}
    actions[where][4 + inner] = (Action(do, 0),)
    plan = Plan((), tuple(actions["before"]), tuple(actions["after"]))
    alone = [range(i, i + 1) for i in range(3)]
    found = cuts(plan, alone, alone, steps=Steps(3, divided=frozenset({1})))
    assert found == (frozenset(), frozenset({expected} - {None}))


def stretches(found, n_layers):
    """(first layer, layer behind the last) between cuts."""
    edges = sorted({0, n_layers, *found})
    return list(zip(edges, edges[1:], strict=False))
