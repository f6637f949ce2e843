"""What `auto` picks: the table's choice where it can run, shared memory below it where buffers lie in windows."""

import pytest

from scaffe.collectives.planning.algorithm import COLLECTIVES, parse
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.selector import Selector
from scaffe.collectives.tuning.table import DEFAULT_TABLE, Choice, TuningEntry, TuningKey, TuningTable

NODE, NETWORK = Topology([0] * 4), Topology.flat(4)


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    entries = [
        TuningEntry(TuningKey("reduce", "shared", 4, "1x4"), (Choice(1000, "mpi", 8), Choice(None, "M", 8))),
        TuningEntry(TuningKey("reduce", "host", 4, "4x1"), (Choice(1000, "B", 8), Choice(None, "C", 16))),
    ]
    path = tmp_path / "table.json"
    TuningTable(entries).write(path)
    monkeypatch.setenv("SCAFFE_TABLE", str(path))
    monkeypatch.setattr("scaffe.collectives.tuning.selector.DEFAULT_TABLE", tmp_path / "none.json")


def chosen(topology, collective, name, chunk_bytes, n_bytes, is_shared):
    algorithm, chunk_bytes = Selector(topology).choose(collective, parse(name), chunk_bytes, n_bytes, is_shared)
    return str(algorithm), chunk_bytes


@pytest.mark.parametrize(("topology", "n_bytes", "is_shared", "right"), [
    (NODE, 10, True, ("mpi", 256 << 10)),
    (NODE, 5000, True, ("M", 8)),
    (NETWORK, 10, False, ("B", 8)),
    (NETWORK, 5000, True, ("C", 16)),
    (Topology([0, 0, 1, 1]), 5000, True, ("MC", 16)),
    (Topology([0, 0, 1, 1]), 10, True, ("MB", 8)),
    (Topology([0, 0, 1, 1]), 5000, False, ("C", 16)),
])
def test_auto(topology, n_bytes, is_shared, right):
    assert chosen(topology, "reduce", "auto", 0, n_bytes, is_shared) == right


def test_a_name_or_a_chunk_given_by_the_caller_stays():
    assert chosen(NODE, "reduce", "CB-2", 77, 10, True) == ("CB-2", 77)
    assert chosen(NODE, "reduce", "auto", 77, 5000, True) == ("M", 77)
    assert chosen(NETWORK, "reduce", "C", 0, 10, True) == ("C", 60 << 10)


def test_what_the_table_does_not_know_is_left_to_mpi():
    assert chosen(NODE, "bcast", "auto", 0, 10, True)[0] == "mpi"
    assert chosen(Topology([0]), "reduce", "auto", 0, 10, True)[0] == "mpi"


@pytest.mark.parametrize(("n_ranks", "nodes", "n_bytes", "algorithm"), [
    (4, "1x4", 2048, "mpi"), (4, "1x4", 2049, "M"), (4, "1x4", 64 << 20, "M"), (2, "1x2", 64 << 20, "M"),
    (8, "1x8", 524288, "mpi"), (8, "1x8", 524289, "M"), (3, "1x3", 1 << 20, "M")])
def test_the_shipped_table_reduces_in_shared_memory_from_some_length_on(n_ranks, nodes, n_bytes, algorithm):
    """As measured, see docs/collectives.md: the library is faster for short messages only."""
    shipped = TuningTable.read(DEFAULT_TABLE)
    assert shipped.choose(TuningKey("reduce", "shared", n_ranks, nodes), n_bytes).algorithm == algorithm


def test_the_shipped_table_takes_bandwidth_bound_algorithms_between_nodes():
    """Chains and rings come within 1.1 of the wire's limit at 64 MiB over 4 and 8 nodes, see docs/collectives.md."""
    shipped = TuningTable.read(DEFAULT_TABLE)
    for n_nodes in (4, 8):
        topology = Topology.flat(n_nodes)
        for collective, algorithm in (("reduce", "C"), ("bcast", "C"), ("allreduce", "R")):
            key = TuningKey.of(collective, "host", topology)
            assert shipped.choose(key, 64 << 20) == Choice(None, algorithm, 61440)


def test_the_shipped_table_knows_every_collective_in_every_kind_of_memory():
    shipped = TuningTable.read(DEFAULT_TABLE)
    for memory, topology in (("host", NETWORK), ("host", NODE), ("shared", NODE)):
        known = {entry.key.collective for entry in shipped.entries
                 if entry.key.memory == memory and (entry.key.nodes[:2] == "1x") == (topology is NODE)}
        assert known == set(COLLECTIVES)


@pytest.mark.parametrize(("collective", "n_bytes", "algorithm"), [
    ("reduce", 4 * (60 << 10), "B"), ("reduce", 4 * (60 << 10) + 1, "C"), ("bcast", 4, "B"), ("bcast", 1 << 20, "C"),
    ("allreduce", 4, "D"), ("allreduce", 1 << 20, "R"), ("reduce_scatter", 4, "H"), ("reduce_scatter", 1 << 20, "R"),
    ("allgather", 4, "D"), ("allgather", 1 << 20, "R")])
def test_without_the_librarys_call_few_rounds_for_short_and_few_bytes_for_long_buffers(collective, n_bytes, algorithm,
                                                                                       monkeypatch):
    monkeypatch.delenv("SCAFFE_TABLE")
    assert chosen(NETWORK, collective, "own", 0, n_bytes, False) == (algorithm, 60 << 10)
    assert chosen(NODE, collective, "own", 0, n_bytes, False)[0] == "M"


def test_an_entry_for_windows_on_several_nodes_goes_before_one_that_is_put_together(tmp_path, monkeypatch):
    entries = [TuningEntry(TuningKey("reduce", memory, n_ranks, nodes), (Choice(None, name, 8),))
               for memory, n_ranks, nodes, name in (("shared", 4, "2x2", "MB"), ("host", 2, "2x1", "C"))]
    path = tmp_path / "own.json"
    TuningTable(entries).write(path)
    monkeypatch.setenv("SCAFFE_TABLE", str(path))
    assert chosen(Topology([0, 0, 1, 1]), "reduce", "auto", 0, 5000, True) == ("MB", 8)
    assert chosen(Topology([0, 0, 1, 1, 1]), "reduce", "auto", 0, 5000, True) == ("MC", 8)


def test_the_length_from_which_bandwidth_counts():
    assert Selector(NETWORK).bandwidth_bytes("reduce", "host") == 1000
    assert Selector(NETWORK).bandwidth_bytes("bcast", "host") == 60 << 10
    assert Selector(NETWORK).bandwidth_bytes("bcast", "device", 77) == 77


def test_a_broadcast_between_two_nodes_is_not_cut_where_others_are():
    assert chosen(Topology.flat(2), "bcast", "C", 0, 10, False) == ("C", 16 << 20)
    assert chosen(Topology.flat(2), "reduce", "C", 0, 10, False) == ("C", 60 << 10)
    assert chosen(Topology.flat(3), "bcast", "C", 0, 10, False) == ("C", 60 << 10)
    assert chosen(Topology([0, 0]), "bcast", "C", 0, 10, False) == ("C", 256 << 10)
