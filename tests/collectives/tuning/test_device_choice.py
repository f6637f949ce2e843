"""What `auto` resolves to for device buffers."""

import pytest

from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import choose_on_device
from scaffe.collectives.tuning.table import Choice, TuningEntry, TuningKey, TuningTable

NODE, NODES, FLAT = Topology([0] * 4), Topology.from_ranks_per_node(8, 4), Topology.flat(4)


@pytest.mark.parametrize(("collective", "n_bytes", "topology", "has_ipc", "name"), [
    ("reduce", 4, NODE, True, "M"), ("allgather", 1 << 30, NODE, True, "M"), ("reduce", 4, NODE, False, "B"),
    ("reduce", 1 << 20, NODE, False, "C"), ("allreduce", 1 << 20, NODES, True, "MR"),
    ("allreduce", 1 << 20, NODES, False, "R"), ("reduce_scatter", 1 << 20, NODES, True, "R"),
    ("bcast", 8, FLAT, True, "B"), ("reduce_scatter", 8, FLAT, True, "H"), ("allgather", 8, FLAT, True, "D"),
    ("allreduce", 8, FLAT, True, "B"), ("bcast", 1 << 20, FLAT, True, "C"), ("allgather", 1 << 20, FLAT, True, "R"),
    ("reduce", (64 << 10) - 1, FLAT, True, "B"), ("reduce", 64 << 10, FLAT, True, "C")])
def test_defaults_on_a_device(collective, n_bytes, topology, has_ipc, name):
    assert choose_on_device(collective, n_bytes, topology, TuningTable([]), has_ipc).algorithm == name


@pytest.mark.parametrize(("n_bytes", "chunk_bytes"), [
    (4, 256 << 10), (2 << 20, 256 << 10), (8 << 20, 1 << 20), (32 << 20, 4 << 20), (1 << 30, 4 << 20)])
def test_chunks_are_an_eighth_within_bounds(n_bytes, chunk_bytes):
    assert choose_on_device("reduce", n_bytes, FLAT, TuningTable([]), has_ipc=True).chunk_bytes == chunk_bytes


def test_the_table_is_keyed_by_place_and_never_gives_the_librarys_own():
    def table(name):
        return TuningTable([TuningEntry(TuningKey.of("reduce", memory, NODE), (Choice(None, algorithm, 77),))
                      for memory, algorithm in (("host", "H"), ("device", name))])
    assert choose_on_device("reduce", 9, NODE, table("CB-2"), True) == Choice(None, "CB-2", 77)
    assert choose_on_device("reduce", 9, NODE, table("mpi"), True).algorithm == "M"
    assert choose_on_device("reduce", 9, NODE, table("M"), False).algorithm == "B"
