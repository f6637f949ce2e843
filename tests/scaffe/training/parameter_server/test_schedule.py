"""A Downpour replica's schedule: Algorithm 1.1 with a fast server, and nothing lost with a slow one."""

import random

import pytest

from scaffe.training.parameter_server.layout import Schedule


def run(schedule, n_steps, has_come, is_free):
    """What happens: (step, "take" | "fetch" | "push", gradients pushed). ``has_come``, ``is_free``: by step."""
    done, waiting = [], []
    for step in range(n_steps):
        if schedule.takes_fetched(has_come(step)):
            done.append((step, "take", ()))
        if schedule.starts_fetch(step):
            done.append((step, "fetch", ()))
        waiting.append(step)
        schedule.stepped(step)
        assert schedule.n_unpushed == len(waiting)
        if schedule.starts_push(is_free(step)):
            done.append((step, "push", tuple(waiting)))
            waiting = []
    return done, waiting


@pytest.mark.parametrize("n_fetch, n_push", [(1, 1), (3, 1), (1, 4), (5, 2), (7, 7)])
def test_with_a_fast_server_it_is_algorithm_1_1(n_fetch, n_push):
    done, _ = run(Schedule(n_fetch, n_push), 40, lambda step: True, lambda step: True)
    assert [step for step, what, _ in done if what == "fetch"] == list(range(0, 40, n_fetch))
    assert [step for step, what, _ in done if what == "push"] == list(range(0, 40, n_push))
    assert [step for step, what, _ in done if what == "take"] == [s + 1 for s in range(0, 39, n_fetch)]
    assert next(steps for _, what, steps in done if what == "push") == (0,)  # the first push has one gradient


@pytest.mark.parametrize("seed", range(50))
def test_with_a_slow_server_every_gradient_is_pushed_once(seed):
    rng = random.Random(seed)
    n_fetch, n_push, n_steps = rng.randint(1, 6), rng.randint(1, 6), rng.randint(1, 60)
    come, free = ([rng.random() < rng.choice([0.1, 0.5, 0.9]) for _ in range(n_steps)] for _ in range(2))
    schedule = Schedule(n_fetch, n_push)
    done, waiting = run(schedule, n_steps, come.__getitem__, free.__getitem__)
    pushed = [step for _, what, steps in done if what == "push" for step in steps]
    assert pushed + waiting == list(range(n_steps))
    assert schedule.synchronizes() == bool(waiting)
    assert not schedule.synchronizes()
    for step, what, _ in done:
        assert {"take": come, "push": free}.get(what, [True] * n_steps)[step]
    fetching = False
    for _, what, _ in done:
        if what != "push":
            assert (what == "take") == fetching
            fetching = what == "fetch"
    due = False
    for step in range(n_steps):  # a push that is due starts in the first step that can
        due = due or step % n_push == 0
        assert ((step, "push") in {(s, what) for s, what, _ in done}) == (due and free[step])
        due = due and not free[step]


def test_a_meeting_forgets_the_fetch_under_way():
    schedule = Schedule(2, 2)
    assert schedule.starts_fetch(0)
    schedule.stepped(0)
    assert schedule.synchronizes()
    assert not schedule.takes_fetched(True)
    assert schedule.starts_fetch(2)
