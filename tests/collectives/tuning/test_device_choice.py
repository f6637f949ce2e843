"""What `auto` resolves to for device buffers."""

from dataclasses import replace

import pytest

from scaffe.collectives.model.cost import Setting, predict
from scaffe.collectives.model.machine import GPU_CLUSTER_2023
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import (
    HOST,
    NVLINK,
    ONE_CARD,
    PCI_EXPRESS,
    Links,
    choose_on_device,
    chunk_of,
)
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


GRID = [1 << power for power in range(18, 26)]  # 256 KiB to 32 MiB


@pytest.mark.parametrize("n_ranks", [3, 4, 20])
@pytest.mark.parametrize("n_bytes", [1_000_000, 25_000_000, 244_000_000, 1_000_000_000])
@pytest.mark.parametrize("start_up_bytes", [4e5, 2e6])
def test_a_chains_chunk_is_the_best_of_its_formula(n_ranks, n_bytes, start_up_bytes):
    def seconds(chunk_bytes):  # in units of o
        return (max(n_bytes / chunk_bytes, 1) + n_ranks - 2) * (1 + min(chunk_bytes, n_bytes) / start_up_bytes)
    found = chunk_of("C", n_bytes, n_ranks, start_up_bytes)
    assert GRID[0] <= found <= GRID[-1]
    assert seconds(found) <= 1.01 * min(map(seconds, GRID))


def model_cases():
    for collective in ("reduce", "allreduce", "reduce_scatter"):
        for n_nodes in (2, 4, 20):
            for n_ports in (8, 1):
                for n_bytes in (25_000_000, 100_000_000, 244_000_000):
                    is_quick = n_nodes < 20 or collective == "reduce"
                    yield pytest.param(collective, n_nodes, n_ports, n_bytes,
                                       marks=[] if is_quick else pytest.mark.thorough)


@pytest.mark.parametrize(("collective", "n_nodes", "n_ports", "n_bytes"), list(model_cases()))
def test_chunks_across_nodes_are_near_the_models_best(collective, n_nodes, n_ports, n_bytes):
    """The event simulation knows nothing of the formula: it runs all ranks' messages, sums and shared ports."""
    topology, machine = Topology.from_ranks_per_node(8 * n_nodes, 8), replace(GPU_CLUSTER_2023, ports=n_ports)
    links = Links(NVLINK, n_ports, machine.inter_bandwidth)
    chosen = choose_on_device(collective, n_bytes, topology, TuningTable([]), True, links=links)
    grid = [chunk for chunk in GRID if n_bytes / 8 / chunk <= 64]
    best = min(predict(Setting(collective, chosen.algorithm, topology, machine), n_bytes, chunk) for chunk in grid)
    setting = Setting(collective, chosen.algorithm, topology, machine)
    assert predict(setting, n_bytes, chosen.chunk_bytes) <= 1.15 * best


def test_a_measured_cost_and_the_ports_decide_the_chunk():
    def chosen(links, **measured):
        topology, table = Topology.from_ranks_per_node(32, 8), TuningTable([], **measured)
        return choose_on_device("reduce", 244_000_000, topology, table, True, links=links).chunk_bytes
    full, one = chosen(Links(NVLINK, 8, 50e9)), chosen(Links(NVLINK, 1, 50e9))
    assert (full, one) == (round((244_000_000 // 8 * 40e-6 * 50e9 / 2) ** 0.5),
                           round((244_000_000 // 8 * 40e-6 * 50e9 / 8 / 2) ** 0.5))
    assert chosen(Links(NVLINK, 8, 50e9), chunk_seconds=160e-6) == pytest.approx(2 * full, abs=2)


def test_nccl_is_taken_where_it_was_found_fastest_and_can_run():
    table = TuningTable([TuningEntry(TuningKey.of("allreduce", "device", NODE), (Choice(None, "nccl", 77),))])
    assert choose_on_device("allreduce", 9, NODE, table, True, has_nccl=True).algorithm == "nccl"
    assert choose_on_device("allreduce", 9, NODE, table, True, has_nccl=False).algorithm == "M"


@pytest.mark.parametrize(("topology", "within", "name"), [
    (NODE, NVLINK, "nccl"), (NODE, PCI_EXPRESS, "M"), (NODE, HOST, "M"), (NODE, ONE_CARD, "M"), (NODES, NVLINK, "nccl"),
    (NODES, PCI_EXPRESS, "nccl"), (FLAT, ONE_CARD, "nccl")])
@pytest.mark.parametrize("collective", ["reduce", "bcast", "allreduce", "reduce_scatter", "allgather"])
def test_nccl_is_the_default_over_nvlink_and_across_nodes(collective, topology, within, name):
    chosen = choose_on_device(collective, 1 << 24, topology, TuningTable([]), True, True, Links(within))
    assert chosen.algorithm == name
    without = choose_on_device(collective, 1 << 24, topology, TuningTable([]), True, False, Links(within))
    assert without.algorithm != "nccl"


def test_a_measured_table_decides_against_nccl():
    table = TuningTable([TuningEntry(TuningKey.of("allreduce", "device", NODES), (Choice(None, "SR", 77),))])
    assert choose_on_device("allreduce", 1 << 24, NODES, table, True, True, Links(NVLINK)).algorithm == "SR"


def test_the_table_is_keyed_by_place_and_never_gives_the_librarys_own():
    def table(name):
        return TuningTable([TuningEntry(TuningKey.of("reduce", memory, NODE), (Choice(None, algorithm, 77),))
                      for memory, algorithm in (("host", "H"), ("device", name))])
    assert choose_on_device("reduce", 9, NODE, table("CB-2"), True) == Choice(None, "CB-2", 77)
    assert choose_on_device("reduce", 9, NODE, table("mpi"), True).algorithm == "M"
    assert choose_on_device("reduce", 9, NODE, table("M"), False).algorithm == "B"
