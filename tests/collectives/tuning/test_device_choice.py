"""What `auto` resolves to for device buffers."""

import pytest

from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import HOST, NVLINK, ONE_CARD, PCI_EXPRESS, Links, choose_on_device
from scaffe.collectives.tuning.table import Choice, TuningEntry, TuningKey, TuningTable

NODE, NODES, FLAT = Topology([0] * 4), Topology.from_ranks_per_node(8, 4), Topology.flat(4)
APART, ONE_EACH = Topology([0, 1] * 4), Topology([0, 0, 0, 1])
LARGE = Topology.from_ranks_per_node(160, 8)


@pytest.mark.parametrize(("collective", "n_bytes", "topology", "has_ipc", "name"), [
    ("reduce", 4, NODE, True, "M"), ("allgather", 1 << 30, NODE, True, "M"), ("reduce", 4, NODE, False, "B"),
    ("reduce", 1 << 20, NODE, False, "C"), ("allreduce", 1 << 20, NODES, True, "SR"),
    ("reduce", 1 << 10, NODES, True, "MB"), ("bcast", 1 << 20, NODES, True, "SC"), ("allgather", 9, NODES, True, "MD"),
    ("allgather", 9, APART, True, "SD"), ("reduce", 1 << 20, ONE_EACH, True, "MC"),
    ("allreduce", 1 << 20, NODES, False, "R"), ("reduce_scatter", 1 << 20, NODES, True, "SR"),
    ("reduce_scatter", 1 << 20, NODES, False, "R"),
    ("bcast", 8, FLAT, True, "B"), ("reduce_scatter", 8, FLAT, True, "H"), ("allgather", 8, FLAT, True, "D"),
    ("allreduce", 8, FLAT, True, "B"), ("bcast", 1 << 20, FLAT, True, "C"), ("allgather", 1 << 20, FLAT, True, "R"),
    ("reduce", 399_999, FLAT, True, "B"), ("reduce", 400_000, FLAT, True, "C"),
    ("reduce", 1 << 20, LARGE, True, "SB"), ("reduce", 16 << 20, LARGE, True, "SC"),
    ("reduce", 16 << 20, Topology.flat(160), True, "C"), ("reduce", 8 << 20, Topology.flat(160), True, "B")])
def test_defaults_on_a_device(collective, n_bytes, topology, has_ipc, name):
    assert choose_on_device(collective, n_bytes, topology, TuningTable([]), has_ipc).algorithm == name


@pytest.mark.parametrize(("n_ports", "n_bytes", "name"), [
    (0, 64 << 10, "SB"), (4, 64 << 10, "SB"), (8, 64 << 10, "SB"), (1, (256 << 10) - 4, "MB"), (1, 256 << 10, "SB"),
    (2, (128 << 10) - 4, "MB"), (3, 128 << 10, "SB")])
def test_shares_that_queue_for_a_port_must_be_longer(n_ports, n_bytes, name):
    nodes, links = Topology.from_ranks_per_node(16, 4), Links(NVLINK, n_ports)
    assert choose_on_device("reduce", n_bytes, nodes, TuningTable([]), True, links=links).algorithm == name


def test_the_worst_link_counts():
    links = [Links(NVLINK, 8), Links(PCI_EXPRESS, 4), Links(ONE_CARD, 8)]
    assert Links.worst(links) == Links(PCI_EXPRESS, 4)
    assert Links.worst([*links, Links(HOST, 0)]) == Links(HOST, 0)
    assert str(Links(NVLINK, 8)) == "GPUs joined by NVLink, 8 network ports a node"


@pytest.mark.parametrize(("n_bytes", "chunk_bytes"), [
    (4, 256 << 10), (2 << 20, 256 << 10), (8 << 20, 1 << 20), (32 << 20, 4 << 20), (1 << 30, 4 << 20)])
def test_chunks_are_an_eighth_within_bounds(n_bytes, chunk_bytes):
    assert choose_on_device("reduce", n_bytes, FLAT, TuningTable([]), has_ipc=True).chunk_bytes == chunk_bytes


def test_chunks_of_shares_are_an_eighth_of_a_share():
    assert choose_on_device("reduce", 128 << 20, NODES, TuningTable([]), has_ipc=True).chunk_bytes == 4 << 20
    assert choose_on_device("reduce", 32 << 20, NODES, TuningTable([]), has_ipc=True).chunk_bytes == 1 << 20


def test_nccl_is_taken_where_it_was_found_fastest_and_can_run():
    table = TuningTable([TuningEntry(TuningKey.of("allreduce", "device", NODE), (Choice(None, "nccl", 77),))])
    assert choose_on_device("allreduce", 9, NODE, table, True, has_nccl=True).algorithm == "nccl"
    assert choose_on_device("allreduce", 9, NODE, table, True, has_nccl=False).algorithm == "M"


def test_the_table_is_keyed_by_place_and_never_gives_the_librarys_own():
    def table(name):
        return TuningTable([TuningEntry(TuningKey.of("reduce", memory, NODE), (Choice(None, algorithm, 77),))
                      for memory, algorithm in (("host", "H"), ("device", name))])
    assert choose_on_device("reduce", 9, NODE, table("CB-2"), True) == Choice(None, "CB-2", 77)
    assert choose_on_device("reduce", 9, NODE, table("mpi"), True).algorithm == "M"
    assert choose_on_device("reduce", 9, NODE, table("M"), False).algorithm == "B"
