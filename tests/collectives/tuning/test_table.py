"""The table of choices: lookup, nearest ranks, its file, and what is worth measuring."""

from __future__ import annotations

import json

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import COLLECTIVES, parse
from scaffe.collectives.planning.planners import require
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.table import DEFAULT_TABLE, MEMORIES, Choice, TuningEntry, TuningKey, TuningTable

BY_SIZE = (Choice(1000, "B", 64), Choice(50000, "CB-4", 4096), Choice(None, "C", 65536))


def entry(collective="reduce", memory="host", n_ranks=8, nodes="8x1", choices=BY_SIZE, source="") -> TuningEntry:
    return TuningEntry(TuningKey(collective, memory, n_ranks, nodes), choices, source)


def always(name: str, **key) -> TuningEntry:
    return entry(choices=(Choice(None, name, 1),), **key)


@pytest.mark.parametrize(("n_bytes", "algorithm"), [(0, "B"), (1000, "B"), (1001, "CB-4"), (50000, "CB-4"),
                                                    (50001, "C"), (1 << 40, "C")])
def test_choice_by_length(n_bytes, algorithm):
    assert TuningTable([entry()]).choose(entry().key, n_bytes).algorithm == algorithm


@pytest.mark.parametrize(("n_ranks", "nodes", "algorithm"), [
    (8, "8x1", "C"), (7, "7x1", "C"), (16, "16x1", "C"), (100, "100x1", "B"), (8, "1x8", "D"), (2, "1x2", "D"),
    (8, "4x2", "CB-node"), (12, "4x3", "CB-node"), (7, "3x2+1x1", "CB-node"), (2, "2x1", "C"),
])
def test_the_nearest_ranks_decide(n_ranks, nodes, algorithm):
    table = TuningTable([always("C"), always("B", n_ranks=64, nodes="64x1"), always("D", n_ranks=4, nodes="1x4"),
                   always("CB-node", nodes="4x2")])
    assert table.choose(TuningKey("reduce", "host", n_ranks, nodes), 5).algorithm == algorithm


def test_ranks_of_one_node_are_no_model_for_ranks_of_several():
    table = TuningTable([always("C", n_ranks=64, nodes="64x1"), always("D", n_ranks=2, nodes="1x2")])
    assert table.choose(TuningKey("reduce", "host", 2, "2x1"), 5).algorithm == "C"  # though 1x2 is near
    assert table.choose(TuningKey("reduce", "host", 32, "1x32"), 5).algorithm == "D"


def test_collectives_and_memories_are_not_mixed():
    table = TuningTable([entry(), always("B", memory="device")])
    assert table.choose(TuningKey("bcast", "host", 8, "8x1"), 5) is None
    assert table.choose(TuningKey("reduce", "shared", 8, "8x1"), 5) is None
    assert table.choose(TuningKey("reduce", "device", 8, "8x1"), 1 << 20).algorithm == "B"


def test_key_of_a_call():
    topology = Topology.from_ranks_per_node(7, 3)
    assert TuningKey.of("reduce", "device", topology) == TuningKey("reduce", "device", 7, "2x3+1x1")


def test_merging_replaces_entries_of_the_same_key():
    merged = TuningTable([entry(), always("B", nodes="4x2")]).merged(TuningTable([always("D")]))
    assert [found.choices[-1].algorithm for found in merged.entries] == ["D", "B"]


def test_written_and_read_back(tmp_path):
    path = tmp_path / "table.json"
    table = TuningTable([entry(source="measured here"), always("MC", collective="bcast", memory="shared", nodes="4x2")])
    table.write(path)
    assert TuningTable.read(path).entries == table.entries


@pytest.mark.parametrize(("change", "words"), [
    ({"collective": "gather"}, "not 'gather'"), ({"memory": "disk"}, "'disk'"), ({"n_ranks": 7}, "do not hold 7"),
    ({"nodes": "eight"}, "8x2 or 2x4.1x3 .*not 'eight'"), ({"nodes": 8}, "not 8"), ({"nodes": None}, "not None"),
    ({"choices": []}, "null at the end"), ({"choices": None}, "entry 0"),
    ({"choices": [{"max_bytes": 5, "algorithm": "C", "chunk_bytes": 1}]}, "null at the end"),
    ({"choices": [{"max_bytes": None, "algorithm": "Q", "chunk_bytes": 1}]}, "'Q': known are"),
    ({"choices": [{"max_bytes": None, "algorithm": "C", "chunk_bytes": 0}]}, "chunk_bytes of 1 or more"),
    ({"choices": [{"max_bytes": None, "algorithm": "C", "chunk_bytes": "1"}]}, "entry 0"),
    ({"choices": [{"max_bytes": None, "algorithm": "C"}]}, "'chunk_bytes' is missing"),
])
def test_a_bad_entry_is_named(tmp_path, change, words):
    good = {"collective": "reduce", "memory": "host", "n_ranks": 8, "nodes": "8x1",
            "choices": [{"max_bytes": None, "algorithm": "C", "chunk_bytes": 1}]}
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"version": 2, "entries": [good | change]}))
    with pytest.raises(CommError, match=f"table .*table.json: entry 0: .*{words}|{words}"):
        TuningTable.read(path)
    path.write_text(json.dumps({"version": 2, "entries": [good]}))
    assert len(TuningTable.read(path).entries) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 3, "entries": []}', '{"version": 2}',
                                  '{"version": 2, "entries": 5}'])
def test_a_bad_file_is_named(tmp_path, text):
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(CommError, match="table .*table.json: "):
        TuningTable.read(path)
    with pytest.raises(CommError, match="absent.json"):
        TuningTable.read(tmp_path / "absent.json")


def test_an_older_file_is_one_line_that_says_what_to_do(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"version": 1, "entries": [
        {"collective": "reduce", "place": "cuda", "n_ranks": 2, "nodes": "1x2", "choices": []}]}))
    with pytest.raises(CommError, match=r"table .*table.json: expected version 2, got .* 1: run `tune` again[^\n]*$"):
        TuningTable.read(path)


def test_the_multiprocessors_of_sums_are_kept(tmp_path):
    path = tmp_path / "table.json"
    TuningTable([], 24).write(path)
    read = TuningTable.read(path)
    assert (read.multiprocessors, TuningTable([]).multiprocessors) == (24, None)
    assert read.merged(TuningTable([])).multiprocessors == 24
    assert read.merged(TuningTable([], 16)).multiprocessors == 16
    for wrong in (0, "many", 2.5, True):
        path.write_text(json.dumps({"version": 2, "entries": [], "multiprocessors": wrong}))
        with pytest.raises(CommError, match=f"table .*table.json: multiprocessors must be 1 or more, not {wrong!r}"):
            TuningTable.read(path)


def test_nccl_is_for_device_memory():
    with pytest.raises(CommError, match="nccl is for device memory"):
        TuningEntry(TuningKey("reduce", "host", 2, "1x2"), (Choice(None, "nccl", 1),))
    TuningEntry(TuningKey("reduce", "device", 2, "1x2"), (Choice(None, "nccl", 1),))


@pytest.mark.parametrize("limits", [(5, 5, None), (6, 5, None), (None, None), (5,), (None, 5), ()])
def test_choices_ascend_to_an_open_end(limits):
    with pytest.raises(CommError, match="ascending max_bytes"):
        entry(choices=tuple(Choice(limit, "C", 1) for limit in limits))


def test_the_shipped_table_reads_and_covers_every_collective_between_hosts():
    table = TuningTable.read(DEFAULT_TABLE)
    assert {found.key.memory for found in table.entries} <= set(MEMORIES)
    for collective in COLLECTIVES:
        for topology in (Topology.flat(8), Topology([0] * 4), Topology.from_ranks_per_node(8, 2)):
            choice = table.choose(TuningKey.of(collective, "host", topology), 1 << 20)
            assert choice is not None
            require(collective, parse(choice.algorithm), topology)


def test_bytes_count_from_the_longest_buffers_choice_on():
    assert entry().bandwidth_bytes == 50000
    assert always("C").bandwidth_bytes == 0


def test_the_cost_of_a_chunk_is_kept(tmp_path):
    path = tmp_path / "table.json"
    TuningTable([], chunk_seconds=3e-5).write(path)
    read = TuningTable.read(path)
    assert (read.chunk_seconds, TuningTable([]).chunk_seconds) == (3e-5, None)
    assert read.merged(TuningTable([])).chunk_seconds == 3e-5
    assert read.merged(TuningTable([], chunk_seconds=1e-5)).chunk_seconds == 1e-5
    for wrong in (0.0, -1.0, 1, "1", True):
        path.write_text(json.dumps({"version": 2, "entries": [], "chunk_seconds": wrong}))
        with pytest.raises(CommError, match=f"table .*table.json: chunk_seconds must be above 0, not {wrong!r}"):
            TuningTable.read(path)
