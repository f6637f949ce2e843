"""CONTRIBUTING's recipe for a new reduction, followed to the letter: one file, found by being there."""

import sys

import pytest

from scaffe.collectives.planning import algorithm, algorithms, planners
from scaffe.collectives.planning.algorithm import parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.tune import candidates
from tests.collectives.cases import check, topologies
from tests.collectives.model.simulator import measured_cost
from tests.collectives.test_mpi import job
from tests.collectives.test_mpi import pytestmark as needs_mpirun

STAR = '''"""Reduce by sending everything straight to the root. Cost: P - 1 messages at the root, one after another."""

from scaffe.collectives.planning.call import Call, Cost, planner
from scaffe.collectives.planning.plan import RecvReduce, Send, Step, chunks


@planner("reduce", "star", lambda n_ranks: Cost(1, 1, n_ranks - 1), names=("S",))
def star(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`."""
    others = [other for other in range(call.n_ranks) if other != call.root]
    if rank != call.root:
        return [Send(call.root, *interval) for interval in chunks(0, call.n_elems, call.chunk_elems)]
    return [RecvReduce(other, *interval) for other in others
            for interval in chunks(0, call.n_elems, call.chunk_elems)]
'''


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder whose planners are found too."""
    (tmp_path / "star.py").write_text(STAR)
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    algorithm.forget()
    yield tmp_path
    monkeypatch.undo()
    sys.modules.pop(f"{algorithms.__name__}.star", None)
    algorithm.forget()


def test_one_file_is_enough_for_the_simulator_and_tune(scratch):
    assert parse_pattern("star") == parse_pattern("S")
    assert "S" in planners.short_names("reduce")
    assert "S" in candidates("reduce", Topology.flat(4))
    for n_ranks in (1, 2, 5, 8):
        for root in range(n_ranks):
            check("reduce", "S", Call(topologies(n_ranks)[2], 37, 5, root), seed=root)
    claim = algorithm.registry()["reduce", "star"].cost(8)
    counted = measured_cost(planners.plans("reduce", parse_pattern("S"), Call(Topology.flat(8), 64, 64)))
    assert (counted.sent, counted.received) == (claim.sent, claim.received)


@needs_mpirun
@pytest.mark.mpi_job
def test_bench_runs_it_by_its_name(scratch):
    code = ("import sys; from scaffe.collectives.planning import algorithms; "
            f"algorithms.__path__.append({str(scratch)!r}); from scaffe.collectives.bench.sweep import main; "
            "sys.exit(main(sys.argv[1:]))")
    result = job(3, ["-c", code, "reduce", "-m", "64:64", "-a", "S,star@16", "-i", "1", "-x", "0", "-c"])
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().endswith("Pass")
