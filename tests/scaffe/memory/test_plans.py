"""Memory plans against brute force over all choices, on small random iterations; each is proved on paper."""

import itertools
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from scaffe.mapped_memory import rounded
from scaffe.memory.plan import search
from scaffe.memory.plan.greedy import least_bytes, needs
from scaffe.memory.plan.layout import arrangement, fitted, occupied
from scaffe.memory.plan.placements import PLACEMENTS, pinned
from scaffe.memory.plan.plan import Action, Choice, Do, MemoryTooSmallError, Plan, WrongPlanError, resident_bytes
from scaffe.memory.plan.schedule import predict, schedule
from scaffe.memory.problem.iteration import Bandwidth, Iteration, Recompute, Tensor

BANDWIDTH = Bandwidth(10.0, 8.0)


def seeds(first, few, end):
    """A test for each; those from ``first + few`` on are thorough."""
    more = (pytest.param(seed, marks=pytest.mark.thorough) for seed in range(first + few, end))
    return pytest.mark.parametrize("seed", [*range(first, first + few), *more])


def chain(n_layers, n_bytes=8, seconds=1.0):
    """Layer i reads array i - 1 and writes array i; backward of layer i needs both; array 0 is always there."""
    parts, last = [], 2 * n_layers - 1
    for i in range(n_layers):
        users = sorted({last - j for j in (i, i + 1) if j < n_layers})
        again = Recompute((i,), (i - 1,) if i else ())
        parts.append(Tensor(f"y{i}", n_bytes, tuple(j for j in (i, i + 1) if j < n_layers), tuple(users), again))
        parts.append(Tensor(f"g{i}", n_bytes, (), tuple(users)))
    parts = [*parts[::2], *parts[1::2]]
    return Iteration(tuple(parts), (seconds,) * (2 * n_layers))


def random_iteration(seed, most=6):
    """Up to six layers that each read one or two earlier arrays; some can be computed again, some are not read."""
    rng = random.Random(seed)
    n = rng.randint(2, most)
    reads = [sorted(rng.sample(range(i), min(i, rng.choice((1, 1, 2))))) for i in range(n)]
    parts = []
    for i in range(n):
        readers = [j for j in range(n) if i in reads[j]]
        needed = [j for j in (i, *readers) if rng.random() < 0.8]
        again = Recompute((i,), tuple(reads[i])) if rng.random() < 0.6 else None
        parts.append(Tensor(f"y{i}", rng.randint(1, 20), (i, *readers), tuple(sorted(2 * n - 1 - j for j in needed)),
                          again))
    for i in range(n):
        users = [j for j in range(n) if i in reads[j]] + [i]
        parts.append(Tensor(f"g{i}", rng.randint(1, 20), (), tuple(sorted(2 * n - 1 - j for j in users))))
    return Iteration(tuple(parts), tuple(rng.uniform(0.1, 3.0) for _ in range(2 * n)))


def with_state(iteration, seed, n_updates=0, ahead=False, late=False):
    """Half the layers get parameters, which computing again reads too, gradients, and a history; these are updated at
    the end of the layer's backward, or there are histories alone, each in an update of its own after backward. Ahead:
    forward may change parameters, too. Late: they are updated in some later step, from gradients that are there for
    that step alone."""
    rng, n = random.Random(seed), len(iteration.seconds) // 2
    parts, updates = list(iteration.tensors), set()
    for i in sorted(rng.sample(range(n), n_updates or -(-n // 2))):
        step = 2 * n - 1 - i if not n_updates else len(iteration.seconds) + len(parts) - len(iteration.tensors)
        own, step = step, rng.randint(step, 2 * n - 1) if late else step
        updates.add(step)
        parts.append(Tensor(f"h{i}", rng.randint(1, 20), (), (step,), is_persistent=True))
        if late:
            parts.append(Tensor(f"w{i}", rng.randint(1, 20), (i,), (own,), late=(step,), is_persistent=True))
        elif not n_updates:
            y = parts[i]
            again = replace(y.recompute, inputs=(*y.recompute.inputs, len(parts))) if y.recompute else None
            parts[i] = replace(y, recompute=again)
            parts.append(Tensor(f"w{i}", rng.randint(1, 20), (i,), (step,), is_persistent=True,
                                changes_in_forward=ahead))
            parts.append(Tensor(f"d{i}", rng.randint(1, 20), (), (step,)))
    if late:
        parts.append(Tensor("d", rng.randint(1, 20), (), tuple(sorted(updates)), is_transient=True))
    return Iteration(tuple(parts), (*iteration.seconds, *[1.0] * n_updates), n_updates)


def all_choices(iteration):
    options = [[Choice.KEEP, Choice.MOVE] + [Choice.RECOMPUTE] * bool(part.recompute)
               + [Choice.BEHIND] * (part.is_persistent and part.may_be_offloaded)
               + [Choice.LATE, Choice.BETWEEN] * (part.is_persistent and bool(part.late))
               if part.forward or part.is_persistent else [Choice.KEEP]
               for part in iteration.tensors]
    return itertools.product(*options)


def best_by_force(iteration, n_bytes):
    """The shortest predicted iteration over all choices; None if none fits."""
    times = []
    for choices in all_choices(iteration):
        with suppress(MemoryTooSmallError):
            times.append(predict(iteration, schedule(iteration, choices, n_bytes, BANDWIDTH), BANDWIDTH).seconds)
    return min(times, default=None)


def limits(iteration):
    most = max(resident_bytes(iteration, schedule(iteration, [Choice.KEEP] * len(iteration.tensors), 10**9, BANDWIDTH)))
    least = least_bytes(iteration)
    return sorted({least, (least + most) // 2, max(least, most - 1), most})


@seeds(0, 20, 60)
def test_auto_is_right_within_the_limit_and_near_the_best_of_all_choices(seed):
    iteration = random_iteration(seed)
    for n_bytes in limits(iteration):
        best = best_by_force(iteration, n_bytes)
        plan = PLACEMENTS["auto"](iteration, n_bytes, BANDWIDTH)
        assert max(resident_bytes(iteration, plan, n_bytes)) <= n_bytes
        assert predict(iteration, plan, BANDWIDTH).seconds <= 1.03 * best


@seeds(300, 10, 330)
@pytest.mark.parametrize(("n_updates", "ahead", "late"), [
    (0, False, False), (2, False, False), (0, True, False), (0, False, True)])
def test_parameters_and_histories_leave_within_the_limit_and_near_the_best_of_all_choices(seed, n_updates, ahead,
                                                                                          late):
    iteration = with_state(random_iteration(seed, most=3), seed, n_updates, ahead, late)
    for n_bytes in limits(iteration):
        best = best_by_force(iteration, n_bytes)
        plan = PLACEMENTS["auto"](iteration, n_bytes, BANDWIDTH)
        assert max(resident_bytes(iteration, plan, n_bytes)) <= n_bytes
        assert predict(iteration, plan, BANDWIDTH).seconds <= 1.03 * best
    assert best_by_force(iteration, limits(iteration)[0] - 1) is None
    lasting = {plan.choices[i] for i, part in enumerate(iteration.tensors) if part.is_persistent}
    assert lasting == {Choice.KEEP}, "where everything fits, nothing leaves"


@seeds(0, 12, 40)
@pytest.mark.parametrize("late", [False, True])
def test_moving_one_array_more_is_needs_anew(seed, late):
    iteration = with_state(random_iteration(seed), seed, late=late)
    rng = random.Random(seed)
    choices = [rng.choice((Choice.KEEP, Choice.RECOMPUTE if part.recompute else Choice.KEEP))
               for part in iteration.tensors]
    need = needs(iteration, choices)
    kept = [i for i, choice in enumerate(choices) if choice is Choice.KEEP]
    for number in rng.sample(kept, len(kept)):
        choices[number] = rng.choice((Choice.MOVE, Choice.LATE) if iteration.tensors[number].late else (Choice.MOVE,))
        need.move(iteration, number, choices[number])
        assert need == needs(iteration, choices)


@pytest.mark.parametrize(("at_once", "seconds"), [(False, 8.0), (True, 7.0)])
def test_moves_the_other_way_run_beside_these_where_the_slow_memory_gives_both_at_once(at_once, seconds):
    """Behind step 0 the first array takes four seconds out; the other one, asked for then, one second back, which
    ends within the four or behind them; then the first takes two back."""
    parts = (Tensor("a", 4, (0,), (2,)), Tensor("w", 2, (1,), is_persistent=True))
    before = [[], [(Do.FETCH, 1), (Do.FETCHED, 1)], [(Do.OFFLOADED, 0), (Do.FETCH, 0), (Do.FETCHED, 0)]]
    after = [[(Do.OFFLOAD, 0)], [(Do.DROP, 1)], [(Do.DROP, 0)]]
    plan = Plan((Choice.MOVE, Choice.MOVE), *(tuple(tuple(Action(*each) for each in step) for step in steps)
                                              for steps in (before, after)))
    iteration = Iteration(parts, (1.0, 0.0, 0.0))
    found = predict(iteration, plan, Bandwidth(1.0, 2.0, at_once))
    assert found.seconds == seconds


@seeds(400, 12, 440)
def test_a_link_s_plan_from_when_its_steps_begin_takes_no_longer_and_keeps_within_the_limit(monkeypatch, seed):
    """Against the plan from steps without waits, for choices drawn at random."""
    iteration, rng = with_state(random_iteration(seed), seed, late=True), random.Random(seed)
    choices = [rng.choice((Choice.KEEP, Choice.MOVE, Choice.RECOMPUTE if part.recompute else Choice.MOVE))
               for part in iteration.tensors]
    n_bytes, link = max(needs(iteration, choices).n_bytes) + 10, Bandwidth(10.0, 8.0, at_once=True)
    plan = schedule(iteration, choices, n_bytes, link)
    assert max(resident_bytes(iteration, plan, n_bytes)) <= n_bytes
    monkeypatch.setattr("scaffe.memory.plan.schedule.FEW_WAITS", 1e9)
    once = schedule(iteration, choices, n_bytes, link)
    assert predict(iteration, plan, link).seconds <= predict(iteration, once, link).seconds


def test_a_prediction_says_when_steps_start():
    """Step 1 waits four seconds for its parameters, less one that step 0 takes."""
    iteration = Iteration((Tensor("w", 32, (1,), is_persistent=True), Tensor("y", 8, (0,), (2,))), (1.0,) * 3)
    link = Bandwidth(8.0, 8.0, at_once=True)
    plan = schedule(iteration, [Choice.MOVE, Choice.KEEP], 40, link)
    assert predict(iteration, plan, link).starts == [0.0, 4.0, 5.0, 6.0]


def test_what_is_read_again_at_once_stays_until_then():
    """In backward right behind forward, where a move takes longer; it leaves from there to its update."""
    parts = (Tensor("w", 10, (0,), (2,), late=(4,), is_persistent=True), Tensor("big", 10, (3,), (3,)),
             Tensor("b", 10, (5,), (5,)))
    iteration = Iteration(parts, (1.0, 0.1, 1.0, 5.0, 1.0, 5.0))
    plan = PLACEMENTS["auto"](iteration, 10, BANDWIDTH)
    assert predict(iteration, plan, BANDWIDTH).fetched == 20
    assert plan.choices[0] is Choice.MOVE
    with_both = schedule(iteration, [Choice.MOVE, Choice.KEEP, Choice.KEEP], 10, BANDWIDTH)
    assert predict(iteration, with_both, BANDWIDTH).fetched == 30


@pytest.mark.parametrize("late", [False, True])
@seeds(300, 12, 340)
def test_arrays_that_are_in_memory_together_do_not_overlap(seed, late):
    iteration = with_state(random_iteration(seed), seed, late=late)
    n_own = sum(not name.startswith(("h", "w", "d")) for name in (part.name for part in iteration.tensors))
    for n_bytes in (limits(iteration)[0], limits(iteration)[-1]):
        plan = PLACEMENTS["auto"](iteration, n_bytes, BANDWIDTH)
        spans = occupied(iteration, plan)
        for step, n_resident in enumerate(resident_bytes(iteration, plan)):  # counted in another way
            there = [i for i, each in enumerate(spans) if any(first <= step <= final for first, final in each)]
            lasting = n_resident - sum(iteration.tensors[i].n_bytes for i in there)
            assert 0 <= lasting <= sum(part.n_bytes for part in iteration.tensors if part.is_persistent)
            layout = arrangement(iteration, plan, n_own)
            offsets = layout.offsets
            others = n_resident - sum(iteration.tensors[i].n_bytes for i in there if i < n_own)
            assert others <= layout.others_bytes
            at = sorted((offsets[i], offsets[i] + iteration.tensors[i].n_bytes) for i in there if i < n_own)
            assert all(end <= start for (_, end), (start, _) in itertools.pairwise(at))
            ends = [offsets[i] + iteration.tensors[i].n_bytes for i in range(n_own) if spans[i]]
            assert layout.n_bytes == rounded(max(ends)) + layout.others_bytes


def test_plans_fit_with_the_gaps_of_their_arena_or_lie_apart(monkeypatch):
    monkeypatch.setattr(search, "MOST_DRAWN", 60)  # whichever plan it is
    seen = set()
    for seed in range(300, 312):
        small = with_state(random_iteration(seed), seed)
        iteration = replace(small, tensors=tuple(replace(part, n_bytes=4096 * part.n_bytes) for part in small.tensors))
        n_own = sum(not part.name.startswith(("h", "w", "d")) for part in iteration.tensors)
        for n_bytes in limits(iteration):
            plan, layout = fitted(iteration, PLACEMENTS["auto"], n_bytes, Bandwidth(40960, 32768), n_own)
            assert max(resident_bytes(iteration, plan, n_bytes)) <= layout.n_bytes <= n_bytes
            seen.add((layout.offsets is not None, plan == PLACEMENTS["auto"](iteration, n_bytes,
                                                                            Bandwidth(40960, 32768))))
    assert seen == {(True, True), (True, False), (False, True)}  # as it is, for less memory, or apart


def test_nothing_comes_between_steps_that_run_in_one_pass():
    parts = (Tensor("y", 25, (0,)), Tensor("w", 10, (3,), (4,), is_persistent=True), Tensor("z", 20, (4,), (5,)))
    for joined, begins in ((frozenset(), 1), (frozenset((1, 2)), 3)):
        iteration = Iteration(parts, (0.1,) * 6, joined=joined)
        plan = schedule(iteration, [Choice.KEEP, Choice.MOVE, Choice.KEEP], 30, BANDWIDTH)
        assert [step for step, actions in enumerate(plan.before) if Action(Do.FETCH, 1) in actions] == [begins]
        resident_bytes(iteration, plan, 30)
    with pytest.raises(WrongPlanError, match="runs with the one before"):
        resident_bytes(replace(iteration, joined=frozenset((3,))), plan, 30)


def test_what_has_not_changed_is_not_written():
    """The parameters of the layer that is first and last come twice and are written once; the history comes once."""
    parts = (Tensor("w", 10, (0,), (5,), is_persistent=True), Tensor("h", 10, (), (5,), is_persistent=True),
             Tensor("y", 40, (1, 2), (3, 4)))
    iteration = Iteration(parts, (1.0,) * 6)
    plan = PLACEMENTS["move"](iteration, 40, BANDWIDTH)
    found = predict(iteration, plan, BANDWIDTH)
    assert (found.offloaded, found.fetched) == (20, 30)
    assert resident_bytes(iteration, plan, 40) == [10, 40, 40, 40, 40, 20]


def test_what_updates_alone_use_comes_after_the_passes():
    iteration = Iteration((Tensor("h", 10, (), (4,), is_persistent=True), Tensor("y", 10, (0,), (3,))), (1.0,) * 5, 1)
    plan = PLACEMENTS["move"](iteration, 10, BANDWIDTH)
    assert plan.before[4] == (Action(Do.FETCH, 0), Action(Do.FETCHED, 0))
    assert plan.after[4] == (Action(Do.OFFLOAD, 0), Action(Do.OFFLOADED, 0))
    assert not any(action.tensor == 0 for step in (*plan.before[:4], *plan.after[:4]) for action in step)


@seeds(100, 10, 130)
def test_the_least_memory_is_that_of_the_best_of_all_choices(seed):
    iteration = random_iteration(seed)
    least = least_bytes(iteration)
    assert best_by_force(iteration, least) is not None
    assert best_by_force(iteration, least - 1) is None
    for name in ("auto", "move", "recompute"):
        with pytest.raises(MemoryTooSmallError):
            PLACEMENTS[name](iteration, least - 1, BANDWIDTH)


@seeds(200, 10, 230)
@pytest.mark.parametrize("name", ["geeps", "move", "recompute"])
def test_every_placement_keeps_to_what_it_says(name, seed):
    iteration = random_iteration(seed)
    for n_bytes in limits(iteration):
        try:
            plan = PLACEMENTS[name](iteration, n_bytes, BANDWIDTH)
        except MemoryTooSmallError:
            assert name != "move"  # moving alone reaches the least
            continue
        assert max(resident_bytes(iteration, plan, n_bytes)) <= n_bytes
        left_out = {"geeps": Choice.RECOMPUTE, "move": Choice.RECOMPUTE, "recompute": Choice.MOVE}[name]
        assert left_out not in plan.choices


@pytest.mark.parametrize("seed", range(20))
def test_of_arrays_that_cost_the_same_the_longest_leaves(seed):
    rng = random.Random(seed)
    lengths = rng.sample(range(1000, 100_000), 5)
    idle = [Tensor(f"w{n}", n, (0,), (5,), is_persistent=True) for n in lengths]
    iteration = Iteration((*idle, Tensor("y", 1, (2,), (3,))), (1.0,) * 6)
    bandwidth = Bandwidth(rng.uniform(1e9, 1e10), rng.uniform(1e9, 1e10))
    plan = PLACEMENTS["move"](iteration, sum(lengths), bandwidth)
    assert [part.n_bytes for part, choice in zip(iteration.tensors, plan.choices, strict=True)
            if choice is Choice.MOVE] == [max(lengths)]


def test_without_need_nothing_leaves():
    iteration = chain(5)
    plan = PLACEMENTS["auto"](iteration, 1000, BANDWIDTH)
    assert set(plan.choices) == {Choice.KEEP}
    assert predict(iteration, plan, BANDWIDTH).slowdown == 1


def test_half_the_activations_recomputed_cost_at_most_their_forward():
    iteration = chain(16, seconds=1.0)
    plan = PLACEMENTS["recompute"](iteration, 12 * 8, BANDWIDTH)
    assert predict(iteration, plan, BANDWIDTH).recompute <= 16
    assert predict(iteration, plan, BANDWIDTH).waited == 0


def test_moves_of_a_fast_disk_hide_behind_computing():
    iteration = chain(20, seconds=5.0)  # a move takes 0.8 and 1 s
    plan = PLACEMENTS["auto"](iteration, 8 * 8, BANDWIDTH)
    assert Choice.MOVE in plan.choices
    assert predict(iteration, plan, BANDWIDTH).slowdown < 1.01


def test_geeps_pins_what_the_peak_uses_first():
    parts = (Tensor("small", 1, (0, 1), (6, 7)), Tensor("large", 10, (1, 2), (5, 6)),
             Tensor("other", 9, (2, 3), (4, 5)))
    iteration = Iteration(parts, (1.0,) * 8)
    assert pinned(iteration, 2 * 19) == {1, 2, 0}  # peak 19: large pinned, then buffers of 2 * 10, then the rest
    with pytest.raises(MemoryTooSmallError, match="twice the peak"):
        pinned(iteration, 19)


def broken(plan, do):
    """The plan without its first action of a kind."""
    def without(steps, found):
        kept = []
        for step in steps:
            index = next((i for i, action in enumerate(step) if action.do is do and not found), None)
            found += [do] * (index is not None)
            kept.append(step if index is None else (*step[:index], *step[index + 1:]))
        return tuple(kept)
    found: list[Do] = []
    return Plan(plan.choices, without(plan.before, found), without(plan.after, found))


@pytest.mark.parametrize("do", list(Do))
def test_the_proof_notices_a_missing_action(do):
    iteration = chain(8)
    choices = [Choice.MOVE, Choice.RECOMPUTE] * 4 + [Choice.KEEP] * 8
    plan = schedule(iteration, choices, 1000, BANDWIDTH)
    resident_bytes(iteration, plan, 1000)
    with pytest.raises(WrongPlanError):
        resident_bytes(iteration, broken(plan, do), 1000)


def test_the_proof_notices_a_limit_that_is_exceeded():
    iteration = chain(6)
    plan = schedule(iteration, [Choice.KEEP] * 12, 1000, BANDWIDTH)
    with pytest.raises(WrongPlanError, match="the limit is"):
        resident_bytes(iteration, plan, 40)


def test_a_prediction_counts_every_wait():
    parts = (Tensor("x", 20, (0,), (3,)), Tensor("g", 1, (), (2, 3)))
    iteration = Iteration(parts, (1.0, 1.0, 1.0, 1.0))
    empty: tuple[Action, ...] = ()
    before = (empty, (Action(Do.OFFLOADED, 0),), (Action(Do.FETCH, 0),), (Action(Do.FETCHED, 0),))
    plan = Plan((Choice.MOVE, Choice.KEEP), before,
                ((Action(Do.OFFLOAD, 0),), empty, empty, (Action(Do.DROP, 0), Action(Do.DROP, 1))))
    assert resident_bytes(iteration, plan) == [20, 0, 21, 21]
    found = predict(iteration, plan, BANDWIDTH)  # out 2 s, all waited for; back 2.5 s, of which 1 s is hidden
    assert (found.offloaded, found.fetched, found.waited) == (20, 20, pytest.approx(3.5))


@pytest.mark.parametrize("n_layers", [20, 100])
def test_a_search_among_more_arrays_tries_fewer_changes(monkeypatch, n_layers):
    """All together are to take seconds: one change takes as much longer as there are more arrays."""
    iteration, tried = chain(n_layers), []
    monkeypatch.setattr(search, "MOST_VISITS", 4000)
    monkeypatch.setattr(search.Search, "seconds", lambda self, choices, below=0.0: tried.append(choices) or 1e9)
    search.Search(iteration, 1000, BANDWIDTH).improved([Choice.KEEP] * len(iteration.tensors))
    assert len(tried) == 1 + 4000 // len(iteration.tensors)
