"""NCCL's start on all ranks or on none, whatever becomes of a rank meanwhile."""

import random
import re

import pytest

from scaffe.collectives.cuda.nccl_start import Verdict, verdict
from tests import pretend
from tests.collectives.cuda.test_jobs import AS_CUPY, command
from tests.collectives.fault_tolerance.test_losses import job_with_losses
from tests.collectives.test_mpi import HERE


class Job:
    """Ranks that start NCCL, in one process: it ends well on a rank only once all have come to it; a rank may fail, and
    another may die, which the others learn some time later."""

    def __init__(self, seed, fails, dies):
        self.luck, self.n_ranks = random.Random(seed), random.Random(seed).randint(2, 6)
        ranks = range(self.n_ranks)
        numbers = self.luck.sample(ranks, self.n_ranks)
        self.failing = numbers[: self.luck.randint(1, self.n_ranks - 1)] if fails else []
        self.victim, self.is_dead = numbers[-1] if dies else None, False
        self.begun, self.ended = set(), dict.fromkeys(ranks)
        self.told = {rank: set() for rank in ranks}  # messages that have arrived
        self.under_way, self.compares, self.lost = [], {}, set()

    def advance(self):
        """One thing happens."""
        rank = self.luck.randrange(self.n_ranks)
        if rank == self.victim and self.luck.random() < 0.1:
            self.is_dead = True
        if self.under_way and self.luck.random() < 0.3:
            sender, target = self.under_way.pop(self.luck.randrange(len(self.under_way)))
            self.told[target].add(sender)
        if (rank == self.victim and self.is_dead) or rank in self.lost:
            return
        self.begun.add(rank)
        self.nccl(rank)
        knows = self.is_dead and self.luck.random() < 0.1
        if rank in self.compares:
            self.lost |= {rank} if knows else set()  # MPI says so
            return
        found = verdict(self.ended[rank], bool(self.told[rank]), knows)
        if found is Verdict.LOST:
            self.lost.add(rank)
        elif found is not Verdict.WAIT:
            self.compares[rank] = self.ended[rank]
        if found is Verdict.TELL:
            self.under_way += [(rank, other) for other in range(self.n_ranks) if other != rank]

    def nccl(self, rank):
        """What NCCL does on a rank."""
        if self.ended[rank] is not None or self.luck.random() < 0.5:
            return
        if rank in self.failing:
            self.ended[rank] = "no room in /dev/shm"
        elif len(self.begun) == self.n_ranks and self.luck.random() < 0.5:
            self.ended[rank] = ""

    @property
    def is_over(self):
        return len(self.compares | dict.fromkeys(self.lost)) >= self.n_ranks - self.is_dead


@pytest.mark.parametrize(("fails", "dies"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("seed", range(60))
def test_all_ranks_come_to_one_end(seed, fails, dies):
    job, n_steps = Job(seed, fails, dies), 0
    while not job.is_over or (job.is_dead and len(job.lost) < job.n_ranks - 1):
        job.advance()
        n_steps += 1
        assert n_steps < 20_000  # nobody waits for ever
    if job.is_dead:
        assert len(job.lost) == job.n_ranks - 1
    else:
        assert {bool(text) for text in job.compares.values() if text is not None} <= {False, bool(job.failing)}
        assert any(job.compares.values()) == bool(job.failing)
        if not job.failing:
            assert set(job.compares.values()) == {""}
        tellers = {rank for rank, text in job.compares.items() if text}  # each has sent one message to each other rank
        for rank in range(job.n_ranks):
            came = job.told[rank] | {sender for sender, target in job.under_way if target == rank}
            assert came == tellers - {rank}


PRELUDE = """
import os, signal
import numpy as np
import cupy
from cupy.cuda import nccl
from scaffe.collectives import CommError, Communicator, RankLost
from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.nccl import NcclCalls

def summed(ranks, algorithm):
    x = cupy.full(1000, ranks.rank + 1, np.float32)
    ranks.allreduce(x, algorithm=algorithm)
    ranks.wait_for_device()
    return float(x.get().sum())

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

def fails(*arguments):
    raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR: no room in /dev/shm")

c = Communicator.world()
device.use_by_rank(c.rank)
"""
THREE = {"PYTHONPATH": f"{HERE.parents[1]}:{AS_CUPY}", "PRETEND_GPUS": "3"}


@pytest.mark.mpi_job
@pretend.needs_compiler
def test_where_it_does_not_start_on_one_rank_auto_does_without_it_on_all():
    body = ("if c.rank == 1: nccl.NcclCommunicator = fails\n"
            "print(summed(c, 'auto'), summed(c, 'auto'), flush=True)\n"
            "try: summed(c, 'nccl')\nexcept CommError as error: print(error, flush=True)")
    result = command(3, "-c", PRELUDE + body, timeout=120, PRETEND_GPUS="3", SCAFFE_RANKS_PER_NODE="1")
    why = "rank 1: NCCL does not start: NCCL_ERROR_SYSTEM_ERROR: no room in /dev/shm"
    assert sorted(result.stdout.splitlines()) == ["6000.0 6000.0"] * 3 + [why] * 3, result.stderr[-3000:]
    assert f"Device buffers go without NCCL: {why}" in result.stderr


DEATHS = {"start": "if c.rank == 1: nccl.NcclCommunicator = die\n",  # while the others wait for it to start
          "call": "summed(c, 'nccl')\nif c.rank == 1: NcclCalls._allreduce = die\n"}  # and for its values
GOES_ON = ("try: summed(c, 'nccl')\nexcept RankLost as loss:\n    left = c.shrink()\n"
           "    print(loss.ranks, summed(left, 'nccl'), flush=True)")


def check_death(when, **environment):
    """Three ranks, of which one is killed; tests/gpu/test_ranks_nccl.py does this on a card."""
    result = job_with_losses(3, "-c", PRELUDE + DEATHS[when] + GOES_ON, timeout=100, **environment)
    assert result.stdout.splitlines() == ["(1,) 3000.0"] * 2, result.stderr[-3000:]
    assert not re.search("Traceback", result.stderr)


@pytest.mark.mpi_job
@pretend.needs_compiler
@pytest.mark.parametrize("when", list(DEATHS))
def test_a_rank_that_is_killed_is_lost_to_the_others_which_go_on_over_nccl(when):
    check_death(when, **THREE)
