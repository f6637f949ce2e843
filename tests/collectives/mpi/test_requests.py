"""Non-blocking collectives: order, overlap with blocking ones, deadlines; windows come and go."""

import gc
import time
from pathlib import Path

import numpy as np
import pytest

from scaffe.collectives import CommError


def test_many_under_way_while_the_caller_makes_blocking_calls(communicator):
    arrays = [np.full(2000 + n, communicator.rank + n, np.float32) for n in range(12)]
    requests = [communicator.ibcast(array, root=n % communicator.n_ranks, algorithm="C", chunk_bytes=512)
                for n, array in enumerate(arrays)]
    total = np.ones(500, np.float32)
    communicator.allreduce(total, algorithm="B" if communicator.n_ranks > 1 else "auto")
    assert (total == communicator.n_ranks).all()
    for n, (request, array) in reversed(list(enumerate(zip(requests, arrays, strict=True)))):
        request.wait(120)
        assert (array == n % communicator.n_ranks + n).all()


def test_a_deadline_names_the_peer_waited_for(communicator):
    if communicator.n_ranks != 2:
        pytest.skip("needs two ranks")
    array = np.zeros(100, np.float32)
    communicator.ibcast(array, algorithm="C").wait(120)
    if communicator.rank == 1:
        request = communicator.ibcast(array, algorithm="C")
        while not communicator._ranks._helper.watch.text():  # until the helper thread waits
            time.sleep(0.001)
        with pytest.raises(CommError, match=r"rank 1: ibcast: not complete after 0\.3 s, waiting for rank 0"):
            request.wait(timeout=0.3)
        assert not request.test()
    communicator.barrier()
    if communicator.rank == 0:
        request = communicator.ibcast(array, algorithm="C")
    request.wait(120)


def test_ranks_agree_before_a_request_is_made(communicator):
    if communicator.n_ranks == 1:
        pytest.skip("one rank alone agrees with itself")
    array = np.zeros(50 + communicator.rank, np.float32)
    with pytest.raises(CommError, match="ranks disagree"):
        communicator.ireduce(array, algorithm="C")


def test_what_a_collective_raises_comes_out_of_its_request(communicator):
    if communicator.n_ranks == 1 or communicator.topology.n_nodes > 1:
        pytest.skip("needs ranks on one node")
    shared = communicator.alloc(100)
    request = communicator.ireduce(shared[communicator.rank:][:50], algorithm="M")
    for ask in (lambda: request.wait(120), request.test):
        with pytest.raises(CommError, match="ranks of one node disagree"):
            ask()


def test_windows_are_given_back(communicator):
    def n_mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:scaffe")

    gc.collect()  # earlier tests' windows go now, not while this one counts
    before = n_mapped()
    buffer = communicator.alloc(100_000)
    views = [buffer[n:] for n in range(10)]
    communicator.allreduce(views[3])
    assert n_mapped() > before or communicator.n_ranks == 1
    del buffer, views
    gc.collect()
    assert n_mapped() <= before


def test_windows_start_at_zero_and_may_be_empty(communicator):
    assert communicator.alloc(0).size == 0
    assert not communicator.alloc(3_000_000, np.int32).any()


def test_a_known_plan_is_not_built_again(communicator):
    array = np.ones(4000, np.float32)
    communicator.allreduce(array, algorithm="C" if communicator.n_ranks > 1 else "auto", chunk_bytes=1024)
    if communicator.n_ranks == 1:
        pytest.skip("one rank alone has no plans")
    kept = communicator._ranks.engine._executions
    n_plans = len(kept)
    for _ in range(3):
        communicator.allreduce(array, algorithm="C", chunk_bytes=1024)
    assert len(kept) == n_plans


def test_objects(communicator):
    assert communicator.bcast_object({"from": communicator.rank}) == {"from": 0}
    gathered = communicator.gather_objects(communicator.rank * 2)
    assert gathered == (None if communicator.rank else [2 * rank for rank in range(communicator.n_ranks)])
    assert communicator.node_rank < communicator.node_n_ranks <= communicator.n_ranks
    assert communicator.topology.n_ranks == communicator.n_ranks
