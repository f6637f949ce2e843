"""The table of docs/design/collectives.md: ours by the model beside NCCL's published bus bandwidths."""

import re
from dataclasses import replace

import pytest

from scaffe.collectives.model.cost import Setting, predict
from scaffe.collectives.model.level_cost import pass_time
from scaffe.collectives.model.machine import GPU_CLUSTER_2023
from scaffe.collectives.planning.levels import IntraNodePhase
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import NVLINK, Links, choose_on_device
from scaffe.collectives.tuning.table import TuningTable
from tests.mpirun import ROOT

N_BYTES = 100_000_000
PAGE = (ROOT / "docs" / "design" / "collectives.md").read_text()
CELL = r"(\w+) ([\d.]+), ([\d.]+) \(([\d.]+)(?: times)?\)"
PORT, NODE, ALL_REDUCE_OF_8 = 46e9, 370e9, 480e9
"""Bytes a second that NVIDIA names: of a port of 400 Gbit/s (nccl-tests#290), and of buses (#212)."""


def moved(collective, n_ranks):
    """What nccl-tests counts for a bus bandwidth."""
    return (2 if collective == "allreduce" else 1) * (n_ranks - 1) / n_ranks * N_BYTES


def least_of_nccl(collective, n_nodes):
    """Milliseconds that the published bandwidths allow."""
    within = ALL_REDUCE_OF_8 if collective == "allreduce" else NODE
    return 1e3 * moved(collective, 8 * n_nodes) / (8 * PORT if n_nodes > 1 else within)


def ours(collective, n_nodes):
    """The algorithm that `auto` takes without NCCL, and its milliseconds by the model."""
    topology, links = Topology.from_ranks_per_node(8 * n_nodes, 8), Links(NVLINK, 8, 50e9)
    found = choose_on_device(collective, N_BYTES, topology, TuningTable([]), True, False, links)
    if n_nodes == 1:
        return found.algorithm, 1e3 * pass_time(IntraNodePhase(collective, 0, N_BYTES), 8, GPU_CLUSTER_2023)
    setting = Setting(collective, found.algorithm, topology, GPU_CLUSTER_2023)
    return found.algorithm, 1e3 * predict(setting, N_BYTES, found.chunk_bytes)


@pytest.mark.parametrize("n_nodes", [1, 4, 20])
@pytest.mark.parametrize("collective", ["allreduce", "reduce_scatter"])
def test_the_page_has_the_models_figures_and_nccl_runs_where_ours_is_slower(collective, n_nodes):
    gpus = "8" if n_nodes == 1 else f"{n_nodes} x 8"
    row = re.search(rf"^\| {gpus} \| {CELL} \| {CELL} \|$", PAGE, re.M)
    name, *figures = row.groups()[:4] if collective == "allreduce" else row.groups()[4:]
    algorithm, milliseconds = ours(collective, n_nodes)
    least = least_of_nccl(collective, n_nodes)
    assert name == algorithm
    assert [float(figure) for figure in figures] == pytest.approx([milliseconds, least, milliseconds / least], rel=0.04)
    topology, links = Topology.from_ranks_per_node(8 * n_nodes, 8), Links(NVLINK, 8, 50e9)
    chosen = choose_on_device(collective, N_BYTES, topology, TuningTable([]), True, True, links).algorithm
    assert chosen == "nccl" or milliseconds <= 1.2 * least


def test_on_pci_express_ours_reaches_the_link_within_a_node():
    machine = replace(GPU_CLUSTER_2023, intra_bandwidth=50e9)
    said = [float(figure) for figure in re.search(r"reach (\d+) and (\d+) GB/s by the\s+model", PAGE).groups()]
    found = [moved(collective, 8) / pass_time(IntraNodePhase(collective, 0, N_BYTES), 8, machine) / 1e9
             for collective in ("allreduce", "reduce_scatter")]
    assert said == pytest.approx(found, abs=0.5)
    assert min(found) * 1.2 >= 50
