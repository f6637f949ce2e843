"""What `auto` picks: the table's choice where it can run, shared memory below it where buffers lie in windows."""

import pytest

from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning import table as selection
from scaffe.collectives.tuning.selector import Selector
from scaffe.collectives.tuning.table import Choice, Entry, Key, Table

NODE, NETWORK = Topology([0] * 4), Topology.flat(4)


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    entries = [
        Entry(Key("reduce", "shared", 4, "1x4"), (Choice(1000, "mpi", 8), Choice(None, "M", 8))),
        Entry(Key("reduce", "host", 4, "4x1"), (Choice(1000, "B", 8), Choice(None, "C", 16))),
    ]
    path = tmp_path / "table.json"
    Table(entries).write(path)
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


def test_the_shipped_table_is_good():
    shipped = Table.read(selection.DEFAULT_TABLE)
    assert {entry.key.collective for entry in shipped.entries} == set(selection.COLLECTIVES)
    assert shipped.choose(Key("reduce", "shared", 4, "1x4"), 64 << 20).algorithm == "M"


def test_a_broadcast_between_two_nodes_is_not_cut_where_others_are():
    assert chosen(Topology.flat(2), "bcast", "C", 0, 10, False) == ("C", 16 << 20)
    assert chosen(Topology.flat(2), "reduce", "C", 0, 10, False) == ("C", 60 << 10)
    assert chosen(Topology.flat(3), "bcast", "C", 0, 10, False) == ("C", 60 << 10)
    assert chosen(Topology([0, 0]), "bcast", "C", 0, 10, False) == ("C", 256 << 10)
