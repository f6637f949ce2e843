"""Which of several plans is taken: from tables of times and workspaces."""

from __future__ import annotations

import random

import pytest

from scaffe.layers.kernels.cuda.cudnn.timing import choose

CONV1 = [(1.00, 519955600), (0.99, 519026320), (1.02, 532036240), (1.029, 462321775), (1.03, 467622607),
         (1.031, 0)]  # workspaces as cuDNN reports them for CaffeNet's conv1, gradient by weights


@pytest.mark.parametrize(("plans", "expected"), [
    ([(1.0, 5)], 0),
    ([(1.0, 5), (1.039, 0)], 1),
    ([(1.0, 5), (1.041, 0)], 0),
    ([(1.04, 3), (1.0, 5), (1.02, 3)], 2),  # as little workspace: the faster one
    ([(2.0, 0), (1.0, 7), (1.0, 7)], 1),  # alike: the first
    ([(0.0, 9), (0.0, 4)], 1),
    (CONV1[:5], 3), (CONV1, 3),
    ([(seconds - (n_bytes == 0) * 0.002, n_bytes) for seconds, n_bytes in CONV1], 5),
])
def test_the_least_workspace_near_the_fastest(plans: list[tuple[float, int]], expected: int) -> None:
    assert choose(*zip(*plans, strict=True)) == expected


def test_no_other_plan_near_the_fastest_needs_less() -> None:
    drawn = random.Random(7)
    for _ in range(300):
        n_plans = drawn.randint(1, 9)
        seconds = [drawn.choice([1, 1.03, 1.05, drawn.uniform(1, 1.1)]) for _ in range(n_plans)]
        workspaces = [drawn.choice([0, 10, 500]) for _ in range(n_plans)]
        taken = choose(seconds, workspaces)
        near = [number for number in range(n_plans) if seconds[number] <= 1.04 * min(seconds)]
        assert taken in near
        assert all((workspaces[taken], seconds[taken]) <= (workspaces[other], seconds[other]) for other in near)
