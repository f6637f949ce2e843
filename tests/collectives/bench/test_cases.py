"""What the benchmarks verify: every element that a collective defines, on every rank."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from scaffe.collectives.bench.measure import CASES, Column, Runner
from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import plan
from scaffe.collectives.planning.algorithm import COLLECTIVES
from scaffe.collectives.planning.call import Call
from scaffe.collectives.topology import Topology
from tests.collectives import cases

N_ELEMS, N_RANKS, ROOT = 37, 5, 3


def fake(rank: int) -> SimpleNamespace:
    """A communicator's rank and parts."""
    return SimpleNamespace(rank=rank, n_ranks=N_RANKS,
                           part=lambda n_elems, of=rank: plan.part(of, N_RANKS, n_elems))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_defined_element_is_verified(collective):
    """Against the reference of the collectives' own tests."""
    case = CASES[collective]
    payload = cases.unique_payload(N_RANKS, N_ELEMS)
    call = Call(Topology.flat(N_RANKS), N_ELEMS, 8, ROOT if case.takes_root else 0)
    assert (collective in ("reduce", "bcast"), "reduce" in collective) == (case.takes_root, case.reduces)
    found = []
    for rank in range(N_RANKS):
        for start, stop, source in case.expected(fake(rank), N_ELEMS, ROOT):
            values = payload.sum(0) if source is None else payload[source]
            found += [(rank, at, values[at]) for at in range(start, stop)]
    right = [(rank, at, value) for rank, where, values in cases.expected(collective, payload, call)
             for at, value in zip(range(N_ELEMS)[where], values, strict=True)]
    assert sorted(found) == sorted(right)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_wrong_element_on_the_only_rank_is_found(collective, monkeypatch):
    alone = Communicator.single()
    buffer = np.zeros(100, np.float32)
    runner = Runner(alone, Column(collective, "X", "auto", 0, 0), buffer, buffer.copy())
    runner.verify(Payload("float32", 1), is_blocking=True)
    monkeypatch.setattr(alone, collective, lambda array, **how: array.__setitem__(99, -1))
    with pytest.raises(CommError, match=f"{collective} by X, 400 bytes: 1 wrong elements on ranks .0."):
        Runner(alone, Column(collective, "X", "auto", 0, 0), buffer, buffer).verify(Payload("float32", 1), True)
