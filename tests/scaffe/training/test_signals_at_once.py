"""Signals that come while others are noted or acted upon."""

import signal
from types import SimpleNamespace

import pytest

from scaffe.training.observers import snapshots
from scaffe.training.observers.snapshots import EFFECTS, Signals


def observed():
    """An observer, the solver that it is given, and the iterations of snapshots."""
    saved = []
    strategy = SimpleNamespace(in_step=SimpleNamespace(agree=lambda level, iteration: level))
    solver = SimpleNamespace(strategy=strategy, are_ranks_ready=lambda: False, iteration=1, stopping=False)
    observer = Signals(SimpleNamespace(save=lambda solver: saved.append(solver.iteration)))
    return observer, solver, saved


def iterate(observer, solver):
    observer.gradients_ready(solver, 0.0, 0.0)
    observer.after_iteration(solver)
    solver.iteration += 1


@pytest.mark.parametrize("outer", [signal.SIGHUP, signal.SIGTERM])
def test_none_is_lost_that_comes_within_anothers_handler(monkeypatch, outer):
    observer, solver, saved = observed()
    inner = [signal.SIGTERM]

    class Interrupted(tuple):
        def index(self, effect):
            while inner:
                observer._on_signal(inner.pop(), None)
            return EFFECTS.index(effect)

    monkeypatch.setattr(snapshots, "EFFECTS", Interrupted(EFFECTS))
    observer._on_signal(outer, None)
    iterate(observer, solver)
    assert (solver.stopping, saved) == (True, [1])


def test_a_stronger_one_that_comes_after_the_agreement_is_done_in_the_next_iteration():
    observer, solver, saved = observed()
    observer._on_signal(signal.SIGHUP, None)
    observer.gradients_ready(solver, 0.0, 0.0)
    observer._on_signal(signal.SIGTERM, None)
    observer.after_iteration(solver)
    assert (solver.stopping, saved) == (False, [1])
    iterate(observer, solver)
    assert (solver.stopping, saved) == (True, [1, 1])
    iterate(observer, solver)
    assert saved == [1, 1]
