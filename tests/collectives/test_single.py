"""One rank without MPI: everything works, nothing is loaded; launchers are told from their environment."""

import subprocess
import sys

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.launch import launched
from scaffe.collectives.transport.host_memory import private_empty


@pytest.fixture
def alone():
    return Communicator.single()


def test_collectives_of_one_rank_change_nothing(alone):
    array = np.arange(7.0)
    alone.bcast(array), alone.reduce(array), alone.allreduce(array), alone.reduce_scatter(array), alone.allgather(array)
    for request in (alone.ibcast(array), alone.ireduce(array), alone.iallreduce(array), alone.ireduce_scatter(array),
                    alone.iallgather(array)):
        assert request.test()
        request.wait(0)
    assert np.array_equal(array, np.arange(7.0))
    out = np.zeros(7)
    alone.allreduce(array, out=out)
    assert np.array_equal(out, array)
    assert (alone.rank, alone.n_ranks, alone.node_rank, alone.node_n_ranks, alone.part(9)) == (0, 1, 0, 1, slice(0, 9))
    assert alone.gather_objects(3) == alone.allgather_objects(3) == [3]
    alone.barrier(), alone.agree(1, "it")


def test_mistakes_of_one_rank(alone):
    with pytest.raises(CommError, match="dtype must be one of"):
        alone.reduce(np.zeros(3, np.uint8))
    for call, text in ((lambda: alone.split(1 << 40), "color must be at most"),
                       (lambda: alone.part(8, 1), "rank must be"),
                       (lambda: alone.alloc(4, object), "dtype must be of numbers"),
                       (lambda: alone.bcast(np.zeros(3), root=0.0), "root must be an integer"),
                       (lambda: alone.reduce(np.zeros(3), chunk_bytes=1 << 31), "chunk_bytes must be at most")):
        with pytest.raises(CommError, match=text):
            call()
    with pytest.raises(CommError, match="a message needs 2 ranks"):
        alone.message_pair(np.zeros(3))


@pytest.mark.parametrize(("name", "value", "is_launched"), [
    ("OMPI_COMM_WORLD_SIZE", "4", True), ("PMI_SIZE", "1", True), ("PMIX_RANK", "0", True),
    ("SLURM_STEP_NUM_TASKS", "2", True), ("SLURM_JOB_ID", "17", False)])
def test_launchers_are_known_by_their_environment(monkeypatch, name, value, is_launched):
    for other in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert launched() == is_launched


def test_one_rank_loads_neither_mpi_nor_a_compiler():
    code = ("import sys; from scaffe.collectives import Communicator; c = Communicator.world(); c.alloc(9); "
            "sys.exit('mpi4py' in sys.modules or 'numba' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_large_private_memory_is_zeroed_and_on_a_huge_page_boundary():
    array = private_empty(3_000_001, np.float32)
    assert array.shape == (3_000_001,)
    assert not array.any()
    assert array.ctypes.data % (2 << 20) == 0





def test_an_unknown_algorithm_is_refused_by_one_rank_too():
    with pytest.raises(CommError, match="no algorithm is called 'XY-3': known are B"):
        Communicator.world().reduce(np.zeros(3, np.float32), algorithm="XY-3")
    for known in ("auto", "mpi", "nccl", "C:bf16", "MR", "CB-4"):
        Communicator.world().algorithms.check(known)


def test_one_rank_is_split_into_itself_and_has_nobody_to_talk_to(alone):
    assert alone.split(3).n_ranks == 1
    assert alone.split(None) is None
    with pytest.raises(CommError, match="a message needs 2 ranks"):
        alone.messages.send(np.zeros(3), 0)
