"""One rank without MPI: everything works, nothing is loaded; launchers are told from their environment."""

import subprocess
import sys

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.bench.check_auto import TRIES, best_other, check
from scaffe.collectives.bench.measure import Column, Runner
from scaffe.collectives.bench.options import algorithms, sizes
from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.launch import launched
from scaffe.collectives.transport.memory import private_empty
from scaffe.collectives.tuning.tune import choices, fewest_changes
from scaffe.collectives.tuning.tune import main as tune
from scaffe.errors import UsageError


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


def test_payloads_are_exact_and_differ_by_rank_and_place():
    payload = Payload("float32", 4)
    rows = np.stack([payload.values(rank, 0, 4096) for rank in range(4)])
    assert len(np.unique(rows)) > 0.98 * rows.size
    assert np.array_equal(payload.sums(5, 99), rows.sum(0)[5:99])
    assert rows.sum(0).max() < 1 << 24
    array = np.zeros(4096, np.float32)
    payload.fill(array, 2)
    assert payload.n_wrong(array, 0, 4096, 2) == 0
    array[[3, 700]] += 1
    assert payload.n_wrong(array, 0, 4096, 2) == 2


def test_a_wrong_element_stops_the_benchmark(alone, monkeypatch):
    buffer = np.zeros(100, np.float32)
    runner = Runner(alone, Column("allreduce", "X", "auto", 0, 0), buffer, buffer.copy())
    runner.verify(Payload("float32", 1), is_blocking=True)
    monkeypatch.setattr(alone, "allreduce", lambda array, **how: array.__setitem__(42, -1))
    with pytest.raises(CommError, match="allreduce by X, 400 bytes: 1 wrong elements on ranks"):
        Runner(alone, Column("allreduce", "X", "auto", 0, 0), buffer, buffer).verify(Payload("float32", 1), True)


def test_flags():
    assert sizes("4:64", 4) == [4, 8, 16, 32, 64]
    assert sizes("1000", 8) == [8, 16, 32, 64, 128, 256, 512]
    assert sizes("1:100", 8, 4) == [8, 32]
    assert algorithms("mpi,C@4096") == [("mpi", "mpi", 0), ("C@4096", "C", 4096)]
    for wrong in ("x", "8:4", ":", "4:"):
        with pytest.raises(CommError, match="-m"):
            sizes(wrong, 4)


def test_tune_refuses_a_place_that_is_not_there():
    with pytest.raises(UsageError, match="^tune: -places takes shared, host, cuda, not 'disk'; see scaffe tune -h$"):
        tune(["--places", "host,disk"])


def test_tune_puts_borders_between_the_lengths_it_measured():
    found = choices([(4, "mpi", 1), (16, "mpi", 1), (64, "M", 1), (256, "M", 2)])
    assert [(choice.max_bytes, choice.algorithm, choice.chunk_bytes) for choice in found] == [
        (32, "mpi", 1), (128, "M", 1), (None, "M", 2)]


def test_tune_keeps_a_candidate_for_as_many_lengths_as_it_is_as_good_as_the_fastest():
    mpi, shared, ring = ("mpi", 1), ("M", 1), ("R", 1)
    figures = [{mpi: 1.0, shared: 3.0, ring: 0.99}, {mpi: 1.0, shared: 2.0, ring: 0.97},
               {mpi: 1.04, shared: 1.0, ring: 1.5}, {mpi: 1.2, shared: 1.03, ring: 1.0},
               {mpi: 1.0, shared: 1.04, ring: 1.0}]
    assert fewest_changes(figures) == [mpi, mpi, mpi, shared, shared]
    assert fewest_changes([{mpi: 1.0, ring: 1.2}, {ring: 1.0, mpi: 1.2}]) == [mpi, ring]
    assert fewest_changes([]) == []


def test_auto_is_compared_with_the_best_other_column_at_its_least_disturbed():
    assert best_other(["mpi", "auto", "C"], [2.0, 2.1, 4.0]) == (pytest.approx(1.05), "mpi")
    noisy = iter([[1.0, 2.0], [1.5, 1.05], [0.0, 0.0]])
    assert check(["M", "auto"], lambda: next(noisy)) == (pytest.approx(1.05), "M")
    slow = iter([[1.0, 1.2]] * TRIES)
    assert check(["M", "auto"], lambda: next(slow)) == (pytest.approx(1.2), "M")
    for titles in (["mpi", "M"], ["auto"]):
        with pytest.raises(CommError, match="-a needs both"):
            check(titles, lambda: [1.0] * 2)


def test_an_unknown_algorithm_is_refused_by_one_rank_too():
    with pytest.raises(CommError, match="no algorithm is called 'XY-3': known are B"):
        Communicator.world().reduce(np.zeros(3, np.float32), algorithm="XY-3")
    for known in ("auto", "mpi", "nccl", "C:bf16", "MR", "CB-4"):
        Communicator.world().check(known)
