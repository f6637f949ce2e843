"""In a forked child of a rank every call on ranks is one error, at once; the ranks go on."""

import os

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.server import ParameterServer


def told(call):
    """The message of a call's CommError, in one line; what it gives where there is none."""
    try:
        return f"no error: {call()!r}"
    except CommError as error:
        return str(error)


def test_each_call_in_a_child_is_one_error(communicator, forked):
    c, x, n = communicator, np.zeros(8, np.float32), communicator.n_ranks
    calls = {"barrier": c.barrier, "bcast": lambda: c.bcast(x), "allreduce": lambda: c.allreduce(x),
             "reduce": lambda: c.reduce(x), "iallreduce": lambda: c.iallreduce(x), "allgather": lambda: c.allgather(x),
             "ireduce_scatter": lambda: c.ireduce_scatter(x), "alloc": lambda: c.alloc(3), "split": lambda: c.split(0),
             "subset": lambda: c.subset(range(n)), "shared": lambda: c.allreduce_shared(x), "free": c.free,
             "bcast_object": lambda: c.bcast_object(1), "gather_objects": lambda: c.gather_objects(1),
             "agree": lambda: c.agree(1, "it"), "fault_tolerant_messages": c.fault_tolerant_messages,
             "lost": lambda: c.check_lost(),
             "device": c.describe_device, "messages": lambda: c.messages.send(x, 0), "shrink": c.shrink,
             "world": Communicator.world, "another": lambda: Communicator(c._comm)}
    said = forked(lambda: {name: told(call) for name, call in calls.items()})
    assert len(said) == len(calls)
    for name, line in said.items():
        assert "forked child" in line and f"of process {os.getpid()}: expected" in line, (name, line)
    c.allreduce(x)


def test_messages_that_a_child_inherits_under_way(communicator, forked):
    c, mine, room = communicator, np.full(3, communicator.rank, np.float32), np.zeros(3, np.float32)
    right, left = (c.rank + 1) % c.n_ranks, (c.rank - 1) % c.n_ranks
    messages = c.messages
    receive = messages.irecv(room, left)
    said = forked(lambda: [told(receive.test), told(receive.wait), told(lambda: messages.test_some([receive])),
                           told(lambda: messages.isend(mine, right)), told(messages.iprobe)])
    assert all("forked child" in line for line in said), said
    messages.isend(mine, right).wait()
    receive.wait()
    assert (room == left).all()
    c.barrier()


def test_requests_that_a_child_inherits_under_way(communicator, forked):
    c, x = communicator, np.zeros(8, np.float32)
    c.ibcast(x, algorithm="C").wait()  # what ranks have agreed on once they begin without a word
    request = c.ibcast(x, algorithm="C") if c.rank else None
    if request is not None:
        said = forked(lambda: (told(request.test), told(request.wait), told(lambda: request.wait(1))))
        assert all("forked child" in line for line in said), said
    if c.rank:  # root begins last: no request is complete before its rank has looked
        c.messages.send(np.zeros(1), 0)
    for rank in range(1, c.n_ranks if c.rank == 0 else 1):
        c.messages.recv(np.zeros(1), rank)
    request = request or c.ibcast(x, algorithm="C")
    request.wait()
    assert forked(lambda: (request.wait(), request.test())) == (None, True)  # it is complete
    c.barrier()


@pytest.mark.parametrize("alone", [False, True])
def test_the_parameter_server(communicator, forked, alone):
    ranks = Communicator.single() if alone else communicator
    server = ParameterServer(ranks)
    batch = server.batch(server.table("t", 20, 3), range(20))
    server.start()
    calls = {"read": batch.read, "update": batch.pre_update, "clock": server.clock, "close": server.close,
             "prefetch": batch.prefetch}
    said = forked(lambda: {name: told(call) for name, call in calls.items()})
    assert all("forked child" in line for line in said.values()), said
    batch.pre_update()[...] = 1
    batch.update()
    server.clock()
    assert (batch.read() == ranks.n_ranks).all()
    batch.post_read()
    server.close()


def test_one_rank_without_mpi_works_in_a_child(forked):
    alone, x = Communicator.single(), np.arange(3.0)
    assert forked(lambda: (alone.allreduce(x), alone.iallreduce(x).test(), alone.bcast_object(5))) == (None, True, 5)
