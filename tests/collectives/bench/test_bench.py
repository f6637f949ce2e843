"""The benchmarks' parts: payloads, verification, flags, the check of `auto`."""

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.bench.measure import Column, Runner
from scaffe.collectives.bench.options import algorithms, sizes
from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.bench.report import TRIES, best_other, check


@pytest.fixture
def alone():
    return Communicator.single()


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


def test_auto_is_compared_with_the_best_other_column_at_its_least_disturbed():
    assert best_other(["mpi", "auto", "C"], [2.0, 2.1, 4.0]) == (pytest.approx(1.05), "mpi")
    noisy = iter([[1.0, 2.0], [1.5, 1.05], [0.0, 0.0]])
    assert check(["M", "auto"], lambda: next(noisy)) == (pytest.approx(1.05), "M")
    slow = iter([[1.0, 1.2]] * TRIES)
    assert check(["M", "auto"], lambda: next(slow)) == (pytest.approx(1.2), "M")
    for titles in (["mpi", "M"], ["auto"]):
        with pytest.raises(CommError, match="-a needs both"):
            check(titles, lambda titles=tuple(titles): [1.0] * len(titles))
