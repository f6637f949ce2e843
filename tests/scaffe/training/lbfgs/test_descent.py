"""The optimiser against closed forms and naive references."""

import numpy as np
import pytest

from scaffe.training.lbfgs.descent import most_vectors
from tests.scaffe.training.lbfgs.rig import Rig

rng = np.random.default_rng(1)
A, B = rng.normal(size=(50, 20)), rng.normal(size=50)


def least_squares(x):
    """Mean of squares / 2, and its gradient."""
    return ((A @ x - B) ** 2).mean() / 2, A.T @ (A @ x - B) / len(B)


def rosenbrock(x):
    """Rosenbrock's valley, of pairs (Nocedal & Wright, exercise 2.1)."""
    a, b = x[::2], x[1::2]
    g = np.empty_like(x)
    g[::2], g[1::2] = -400 * a * (b - a * a) - 2 * (1 - a), 200 * (b - a * a)
    return (100 * (b - a * a) ** 2 + (1 - a) ** 2).sum(), g


def two_loop(g, pairs):
    """Nocedal & Wright, algorithm 7.4, on whole vectors."""
    q, alphas = g.copy(), []
    for s, y in reversed(pairs):
        alphas.append(s @ q / (s @ y))
        q -= alphas[-1] * y
    s, y = pairs[-1]
    q *= s @ y / (y @ y)
    for (s, y), alpha in zip(pairs, reversed(alphas)):
        q += s * (alpha - y @ q / (s @ y))
    return -q


@pytest.mark.parametrize("n_shards", [1, 3])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_least_squares(l2, n_shards):
    rig = Rig(least_squares, np.zeros(20), n_shards, l2=l2, tolerance=1e-8)
    found = rig.minimise()
    expected = np.linalg.solve(A.T @ A / 50 + l2 * np.eye(20), A.T @ B / 50)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert rig.optimiser.value == pytest.approx(least_squares(expected)[0] + l2 / 2 * expected @ expected, rel=1e-12)
    assert rig.optimiser.loss == pytest.approx(least_squares(expected)[0], rel=1e-6)
    assert rig.optimiser.has_converged
    assert rig.optimiser.progress.n_steps < 60


def proximal(l1, n_steps=20_000):
    """The minimum with an L1 decay, by proximal gradient steps."""
    x, rate = np.zeros(20), 1 / np.linalg.norm(A.T @ A / 50, 2)
    for _ in range(n_steps):
        x = x - rate * least_squares(x)[1]
        x = np.sign(x) * np.maximum(np.abs(x) - rate * l1, 0)
    return x


@pytest.mark.parametrize("l1", [0.02, 0.1])
def test_an_l1_decay_makes_zeros(l1):
    rig, expected = Rig(least_squares, np.full(20, 0.1), l1=l1), proximal(l1)
    found = rig.minimise()
    value = least_squares(expected)[0] + l1 * np.abs(expected).sum()
    assert rig.optimiser.value == pytest.approx(value, rel=1e-10)
    np.testing.assert_array_equal(found == 0, expected == 0)
    assert 0 < (found == 0).sum() < 20


def test_a_valley_that_is_not_convex():
    rig = Rig(rosenbrock, np.array([-1.2, 1.0] * 5))
    np.testing.assert_allclose(rig.minimise(), np.ones(10), atol=1e-6)
    assert rig.optimiser.progress.n_evaluations < 80
    assert rig.optimiser.progress.n_evaluations == len(rig.points)


@pytest.mark.parametrize("history", [1, 3, 10])
def test_directions_are_those_of_the_two_loop_recursion(history):
    rig = Rig(rosenbrock, np.array([-1.2, 1.0] * 5), history=history)
    for _ in range(12):
        pairs = [(rig.get(s), rig.get(y)) for s, y in rig.optimiser.pairs.kept]
        _, g = rosenbrock(rig.get("x"))
        rig.minimise(1)
        expected = two_loop(g, pairs) if pairs else -g
        np.testing.assert_allclose(rig.get("d"), expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())
    assert len(rig.optimiser.pairs.kept) == history


@pytest.mark.parametrize("decay", [{}, {"l2": 0.1}, {"l1": 0.02}])
@pytest.mark.parametrize("history", [1, 4])
def test_no_shard_has_more_vectors_than_are_counted(decay, history):
    rig = Rig(least_squares, np.full(20, 0.1), history=history, **decay)
    rig.minimise(30)
    most = most_vectors(history, rig.optimiser.objective) - (0 if decay else 2)  # decay and spare
    assert {len(shard.vectors) for shard in rig.shards} <= {most - 1, most}  # the third gradient is a second trial's


def test_a_step_takes_two_rounds_beside_two_a_trial():
    """The direction, and all inner products of the next one; where to evaluate, and what it gave."""
    rig = Rig(rosenbrock, np.array([-1.2, 1.0] * 5))
    rounds, trials = rig.n_rounds, rig.optimiser.progress.n_trials
    rig.minimise(20)
    assert rig.n_rounds - rounds == 2 * 20 + 2 * (rig.optimiser.progress.n_trials - trials)


def test_no_point_is_evaluated_twice():
    rig = Rig(rosenbrock, np.array([-1.2, 1.0] * 5))
    rig.minimise(25)
    assert len({point.tobytes() for point in rig.points}) == len(rig.points)
    value, gradient = rosenbrock(rig.get("x"))
    assert rig.optimiser.value == value
    np.testing.assert_array_equal(rig.get(rig.optimiser._g), gradient)


def test_the_first_trials_length():
    rig = Rig(least_squares, np.zeros(20))
    rig.minimise(1, length=0.125)
    assert np.linalg.norm(rig.points[1]) == pytest.approx(0.125)


def test_pairs_without_curvature_are_skipped_and_a_flat_place_ends_it():
    def saddle(x):
        return float(np.cos(x).sum()), -np.sin(x)

    rig = Rig(saddle, np.full(4, 0.3))
    rig.minimise(1, length=0.1)  # still concave there: c2 lets no such step pass, so it went on to where it is not
    assert rig.optimiser.value < saddle(np.full(4, 0.3))[0]
    flat = Rig(lambda x: (1.0, np.zeros(4)), np.zeros(4))
    flat.minimise(1)
    assert flat.optimiser.has_converged
    assert flat.optimiser.progress.n_trials == 0


def test_a_loss_that_is_not_finite_shortens_the_step():
    def walled(x):
        value, gradient = least_squares(x)
        return (value, gradient) if np.abs(x).max() < 1 else (np.nan, gradient * np.nan)

    rig = Rig(walled, np.zeros(20))
    found = rig.minimise(60, length=100.0)
    np.testing.assert_allclose(found, np.linalg.solve(A.T @ A / 50, A.T @ B / 50), atol=1e-6)
    assert any(np.abs(point).max() > 1 for point in rig.points)
