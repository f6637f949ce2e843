"""Communicators that are given back: to MPI, which has few of them, with their threads; and what is said afterwards."""

import threading

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.server import ParameterServer

N_SPLITS, FEW_SPLITS = 260, 31
"""MPICH has 2,048 communicators, and one of ours takes eight or nine. More than two ranks take long, and make few."""


def test_more_than_mpi_has_are_made_one_after_another(communicator):
    """In use meanwhile, with messages that nobody receives and that the next one must not get."""
    rank, n_ranks = communicator.rank, communicator.n_ranks
    for number in range(N_SPLITS if n_ranks <= 2 else FEW_SPLITS):
        made = communicator.split(0)
        if n_ranks > 1 and number % 30 == 0:
            array = np.full(99, rank + 1, np.float32)
            made.allreduce(array, algorithm="C")
            request = made.iallreduce(array, algorithm="C")
            made.messages.isend(array, (rank + 1) % n_ranks, 3)
            if number % 60:
                request.wait(120)
            made.free()
            assert request.test()
            assert (array == n_ranks**2 * (n_ranks + 1) / 2).all()
        assert n_ranks == 1 or number % 30 == 0 or made.messages.iprobe() is None
        made.free()


def test_threads_end_and_arrays_and_others_stay(communicator):
    communicator.barrier()
    before = set(threading.enumerate())
    made = communicator.split(0)
    array, part = made.alloc(1000), made.split(made.rank % 2)
    made.iallreduce(array).wait(120)
    made.free()
    array[:] = 3
    part.allreduce(array)
    assert (array == 3 * part.n_ranks).all()
    part.free()
    assert not [thread.name for thread in set(threading.enumerate()) - before if "collectives" in thread.name]
    communicator.allreduce(array, "max")


def test_afterwards_every_call_is_one_error(communicator):
    with communicator.split(0) as made:
        made.barrier()
    calls = (lambda: made.allreduce(np.ones(3)), lambda: made.ibcast(np.ones(3)), lambda: made.alloc(3), made.barrier,
             lambda: made.split(0), lambda: made.subset([0]), lambda: made.messages, made.check_lost, made.shrink,
             lambda: made.allgather_objects(1), lambda: made.topology,
             lambda: made.algorithms.choose_as_if_shared(), lambda: made.allreduce_shared(np.ones(3)),
             made.fault_tolerant_messages, made.links)
    for call in calls:
        with pytest.raises(CommError, match="has been freed: expected no call on it"):
            call()
    made.free()
    assert (made.rank, made.n_ranks) == (communicator.rank, communicator.n_ranks)


def test_after_an_exception_it_stays(communicator):
    made = communicator.split(0)
    with pytest.raises(ZeroDivisionError), made:
        raise ZeroDivisionError
    made.barrier()
    made.free()


def test_ranks_that_do_not_agree_are_told_so_and_nothing_is_freed(communicator, last):
    if communicator.n_ranks == 1:
        pytest.skip("one rank alone agrees with itself")
    made = communicator.split(0)
    with pytest.raises(CommError, match="ranks disagree: .*free"):
        made.alloc(7) if last else made.free()
    receive = made.messages.irecv(np.empty(3)) if last else None
    with pytest.raises(CommError, match=f"rank {made.n_ranks - 1}: free: 1 receives are under way"):
        made.free()
    if receive is not None:
        receive.cancel()
    made.free()


def test_a_server_gives_back_what_it_made(communicator):
    made = Communicator.world(deadline=120, node_of_rank=range(communicator.n_ranks))
    server = ParameterServer(made)
    table = server.table("t", 3, 4)
    server.start({"t": np.ones(12)})
    server.close()
    made.free()
    assert (server.values(table) == 1).all()
    if communicator.n_ranks > 1:
        with pytest.raises(CommError, match="has been freed"):
            server._running.others.barrier()
