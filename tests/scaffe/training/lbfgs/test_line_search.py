"""The line searches on functions of one variable: the conditions hold, and few trials are needed."""

import math

import numpy as np
import pytest

from scaffe.training.lbfgs.descent import Pairs
from scaffe.training.lbfgs.line_search import Backtrack, Point, Rules, Wolfe, cubic

STEPS = [1e-3, 0.1, 1.0, 30.0]


def searched(function, first, rules):
    """Drive a search; function gives (value, slope)."""
    search = Wolfe(Point(0.0, *function(0.0)), rules)
    trials, seen = search.trials(first), []
    step = next(trials)
    while True:
        seen.append(step)
        try:
            step = trials.send(function(step))
        except StopIteration:
            return search, seen


def functions():
    """More & Thuente's (1994) first two, a quartic, and a random smooth one."""
    yield lambda a: (-a / (a * a + 2), (a * a - 2) / (a * a + 2) ** 2)
    yield lambda a: ((a + 0.004) ** 5 - 2 * (a + 0.004) ** 4, 5 * (a + 0.004) ** 4 - 8 * (a + 0.004) ** 3)
    yield lambda a: ((a - 3) ** 4, 4 * (a - 3) ** 3)
    rng = np.random.default_rng(3)
    for _ in range(20):
        w, p = rng.uniform(0.2, 3, 4), rng.uniform(0, 6, 4)
        yield lambda a, w=w, p=p: (0.01 * a * a - a + float((0.3 * np.sin(w * a + p)).sum()),
                                   0.02 * a - 1 + float((0.3 * w * np.cos(w * a + p)).sum()))


@pytest.mark.parametrize("first", STEPS)
@pytest.mark.parametrize("c2", [0.9, 0.1])
def test_the_strong_wolfe_conditions_hold(c2, first):
    n_searches = 0
    for function in functions():
        value, slope = function(0.0)
        if slope >= 0:
            continue
        search, seen = searched(function, first, Rules(1e-4, c2, 40, 0.0))
        n_searches += 1
        assert search.is_met
        found = search.low
        assert (found.value, found.slope) == function(found.step)
        assert found.value <= value + 1e-4 * found.step * slope
        assert abs(found.slope) <= c2 * abs(slope)
        assert search.n_trials == len(seen) == len(set(seen)) <= 25
        assert found.step in seen
    assert n_searches >= 15


def test_a_good_first_step_is_the_only_trial():
    assert searched(lambda a: ((a - 1) ** 2, 2 * (a - 1)), 1.0, Rules())[1] == [1.0]


def test_the_limit_of_trials_and_the_best_so_far():
    search, seen = searched(lambda a: (-a, -1.0), 1.0, Rules(max_trials=5))  # falls for ever
    assert len(seen) == 5
    assert not search.is_met
    assert search.low.step == seen[-1] == max(seen)


def test_nothing_is_found_where_nothing_falls():
    search, _ = searched(lambda a: (abs(a), 1.0 if a else -1.0), 1.0, Rules(max_trials=30))
    assert search.low.step == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_too_far(bad):
    search, _ = searched(lambda a: ((a - 1) ** 2, 2 * (a - 1)) if a < 2 else (bad, bad), 50.0, Rules())
    assert search.is_met
    assert 0 < search.low.step < 2


@pytest.mark.parametrize("seed", range(5))
def test_slopes_decide_where_values_are_noise(seed):
    """A parabola under noise larger than all its differences."""
    rng = np.random.default_rng(seed)

    def noisy(a):
        return 1 + 1e-9 * (a - 1) ** 2 + 1e-8 * rng.random(), 2e-9 * (a - 1)

    search, _ = searched(noisy, 7.0, Rules(c2=0.1, noise=1e-7))
    assert search.is_met
    assert search.low.step == pytest.approx(1, abs=0.11)


def test_the_cubics_minimum():
    for seed in range(10):
        a, b = np.random.default_rng(seed).normal(size=2)
        p = np.polynomial.Polynomial([a, -1, b, 1.5])  # one minimum
        dp = p.deriv()
        wanted = max(dp.roots().real)
        found = cubic(Point(0, p(0), dp(0)), Point(2, p(2), dp(2)))
        assert found == pytest.approx(wanted, rel=1e-9)
    assert math.isnan(cubic(Point(1, 0, 0), Point(1, 0, 0)))
    assert math.isnan(cubic(Point(0, 0, 1), Point(1, 0.5, 1e-3)) - math.nan)


def test_backtracking_halves_until_it_falls_enough():
    search = Backtrack(Point(0.0, 1.0, -1.0), Rules(c1=0.5, noise=0.0))
    trials = search.trials(1.0)
    assert next(trials) == 1
    assert trials.send((math.nan, -1.0)) == 0.5
    assert trials.send((0.9, -0.5)) == 0.25  # falls by 0.1, not by half of 0.5
    with pytest.raises(StopIteration):
        trials.send((0.8, -0.25))
    assert (search.low.step, search.low.value, search.is_met, search.n_trials) == (0.25, 0.8, True, 3)


def test_pairs_are_a_ring_of_names():
    pairs, made = Pairs(2), []
    for _ in range(5):
        made.append(pairs.next)
        assert pairs.next not in pairs.kept
        assert pairs.take(1.0, 1.0, 1.0)
        assert pairs.kept == made[-2:]
    assert len(set(made)) == 3
    assert not pairs.take(1.0, 0.0, 1.0)
    assert not pairs.take(1.0, -1.0, 1.0)
    assert not pairs.take(1.0, math.nan, 1.0)
    assert (pairs.n_skipped, pairs.kept) == (3, made[-2:])
    pairs.clear()
    assert (pairs.n_cleared, pairs.kept) == (1, [])
    assert pairs.take(1.0, 1.0, 1.0)
