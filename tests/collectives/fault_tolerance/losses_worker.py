"""Ranks are killed one after another, each in another call; those that are left say how they went on."""

import json
import os
import signal
import sys

import numpy as np

from scaffe.collectives import Communicator, RankLost

CALLS = ("iallreduce MC", "bcast mpi", "ireduce C", "split")


def call(ranks, array, what):
    """One of CALLS, on an array in a window."""
    name, _, algorithm = what.partition(" ")
    if name == "split":
        ranks.split(ranks.rank % 2)
    elif name == "barrier":
        ranks.barrier()
    else:
        request = getattr(ranks, name)(array, algorithm=algorithm)
        if request is not None:
            request.wait()


def lose(ranks, what, victim):
    """Kills `victim` just before it would take part in a call; returns what the others are told, in their numbers."""
    array, part = ranks.alloc(10_007), ranks.split(0)
    call(ranks, array, what)
    if ranks.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:  # a broadcast's root, say, needs nobody: it learns of the loss in a later call
            call(ranks, array, what)
    except RankLost as loss:
        part.free()  # waits for nobody
        return loss.ranks


def sums(ranks):
    """Whether allreduces on these ranks give what a formula says, in shared and in private memory."""
    values = np.arange(1001) * (ranks.rank + 1.0)
    right = np.arange(1001) * (ranks.n_ranks * (ranks.n_ranks + 1) / 2)
    shared = ranks.alloc(1001, np.float64)
    shared[:] = values
    ranks.allreduce(shared)
    ranks.iallreduce(values).wait()
    return bool((shared == right).all() and (values == right).all())


ranks = Communicator.world(node_of_rank=[int(n) for n in sys.argv[1].split(",")])
told = []
for number, what in enumerate(CALLS):
    victim = (0, ranks.n_ranks - 1, ranks.n_ranks // 2)[number % 3]
    found = lose(ranks, what, victim)
    ranks = ranks.shrink()
    told.append((what, victim, list(found), ranks.n_ranks, sums(ranks), ranks.topology.n_nodes))
if ranks.rank == 0:
    print(json.dumps(told), flush=True)
