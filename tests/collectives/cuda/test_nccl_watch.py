"""NCCL's collectives that are queued and not looked at by anybody: done, late, failed, or waiting for a lost rank."""

import threading
from contextlib import nullcontext

import numpy as np
import pytest

from scaffe.collectives import CommError
from scaffe.collectives.cuda import nccl_watch
from scaffe.collectives.cuda.nccl_watch import GRACE_SECONDS, NcclWatch, QueuedCalls, Surroundings, Verdict
from scaffe.collectives.cuda.streams import Streams
from tests import pretend

DEADLINE = 30.0


class Machine:
    """A device that reaches calls in order, some time after they are queued; what may go wrong, and when."""

    def __init__(self, rng, kind):
        self.rng, self.now, self.queued, self.reached, self.marked = rng, 0.0, 0, 0, 0
        self.kind, self.from_call = kind, int(rng.integers(1, 30))  # this call, and later ones, never end
        self.since = None

    def step(self, calls):
        self.now += float(self.rng.uniform(0, 0.2))
        if self.queued < 40 and self.rng.random() < 0.3:
            calls.queue()
            self.queued += 1
        stuck = self.from_call if self.kind != "well" else self.queued + 1
        if self.reached < min(self.queued, stuck - 1) and self.rng.random() < 0.5:
            self.reached += 1
        if self.kind != "well" and self.queued >= stuck and self.since is None:
            self.since = self.now

    @property
    def has_loss(self):
        return self.kind in ("lost", "failed, then lost") and self.since is not None and self.now > self.since + 1

    @property
    def has_error(self):
        return self.kind.startswith("failed") and self.since is not None and self.now > self.since + 0.5


@pytest.mark.parametrize("kind", ["well", "lost", "failed", "failed, then lost", "late"])
@pytest.mark.parametrize("seed", range(20))
def test_every_call_ends_as_it_should(kind, seed):
    machine, calls, ended = Machine(np.random.default_rng(seed), kind), QueuedCalls(DEADLINE), None
    is_marked = False
    for _ in range(2000):
        machine.step(calls)
        is_reached = is_marked and machine.reached >= machine.marked
        verdict = calls.look(machine.now, is_reached, machine.has_error, machine.has_loss)
        if verdict is Verdict.MARK:
            assert not is_marked or is_reached  # one mark at a time
            machine.marked, is_marked = machine.queued, True
        elif verdict is Verdict.IDLE:
            assert machine.reached == machine.queued
        elif verdict is not Verdict.WAIT:
            ended = verdict
            break
    right = {"well": None, "lost": Verdict.LOST, "failed": Verdict.FAILED, "failed, then lost": Verdict.LOST,
             "late": Verdict.LATE}
    assert ended is right[kind]
    if kind == "failed":
        assert machine.since + 0.5 + GRACE_SECONDS < machine.now < machine.since + 0.5 + GRACE_SECONDS + 1
    if kind == "late":  # counted from the mark, which is not made before the last one was reached
        assert machine.since + DEADLINE - 0.2 < machine.now < machine.since + DEADLINE + 40
    if kind == "well":
        assert machine.reached == machine.queued == 40


class Communicator:
    """CuPy's, whose kernels end when the test says so, or when they are aborted."""

    def __init__(self):
        self.error, self.ended, self.over = None, [], threading.Event()

    def check_async_error(self):
        if self.error:
            raise RuntimeError(self.error)

    def abort(self):
        self.ended.append("abort")
        self.over.set()

    def destroy(self):
        self.ended.append("destroy")


class Rig:
    """A watch over a communicator, and what it has said of the job."""

    def __init__(self, monkeypatch, deadline=60.0):
        monkeypatch.setattr(nccl_watch, "LOOK_SECONDS", 0.001)
        monkeypatch.setattr(nccl_watch, "GRACE_SECONDS", 0.01)
        self.communicator, self.loss, self.said = Communicator(), threading.Event(), []
        self.spoke = threading.Event()
        ranks = Surroundings(deadline, True, self.loss.is_set, nullcontext, lambda label: self._say(label, "late"),
                             self._say)
        streams = Streams()
        monkeypatch.setattr(nccl_watch.NcclWatch, "_is_reached", lambda watch: watch._is_marked and self.is_over())
        self.is_over = lambda: False
        self.watch = NcclWatch(self.communicator, streams, ranks)

    def _say(self, label, what):
        self.said.append((label, what))
        self.spoke.set()


@pytest.fixture
def rig(monkeypatch):
    pretend.install(monkeypatch)
    return Rig(monkeypatch)


def test_a_lost_rank_ends_the_kernels_that_wait_for_it(rig):
    rig.watch.queued("allreduce by NCCL")
    rig.loss.set()
    assert rig.communicator.over.wait(20)  # so `float(loss)` returns
    rig.watch._thread.join(20)
    with pytest.raises(CommError, match="allreduce by NCCL: NCCL is aborted: a rank is lost"):
        rig.watch.check()
    rig.watch.close(is_well=False)
    assert rig.communicator.ended == ["abort"]
    assert rig.said == []  # the loss is told elsewhere


def test_nothing_is_queued_once_a_rank_is_lost(rig):
    rig.loss.set()
    with pytest.raises(CommError, match="a rank is lost"):
        rig.watch.check()
    rig.watch.close(is_well=False)
    assert rig.communicator.ended == ["abort"]


def test_an_error_of_nccls_ends_the_job_with_a_line(rig):
    rig.communicator.error = "NCCL_ERROR_REMOTE_ERROR: remote process exited"
    rig.watch.queued("bcast by NCCL")
    assert rig.spoke.wait(20)
    assert rig.said == [("bcast by NCCL", "has failed: NCCL_ERROR_REMOTE_ERROR: remote process exited")]
    assert rig.communicator.ended == ["abort"]


def test_a_rank_that_does_not_come_ends_the_job_with_a_line(monkeypatch):
    pretend.install(monkeypatch)
    rig = Rig(monkeypatch, deadline=0.05)
    rig.watch.queued("reduce by NCCL")
    assert rig.spoke.wait(20)
    assert rig.said == [("reduce by NCCL", "late")]
    assert rig.communicator.ended == ["abort"]


def test_what_the_device_has_reached_is_done(rig):
    rig.is_over = lambda: True
    for _ in range(50):
        rig.watch.queued("allgather by NCCL")
    rig.watch.close(is_well=True)
    assert rig.communicator.ended == ["destroy"]
    assert rig.said == []


def test_the_watch_ends_before_the_interpreter_does_and_leaves_nccl_as_it_is(rig):
    rig.watch.queued("allreduce by NCCL")
    rig.watch.stop()
    assert not rig.watch._thread.is_alive()
    assert rig.communicator.ended == []
