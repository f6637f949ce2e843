"""The event model against closed forms, the extension to long messages against the events, and the figures."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.model import paper_figures as figures
from scaffe.collectives.model.cost import Setting, fastest, predict, simulate
from scaffe.collectives.model.level_cost import pass_time
from scaffe.collectives.model.machine import EMULATED_1_GBIT, GPU_CLUSTER_2016, GPU_CLUSTER_2023, Machine
from scaffe.collectives.planning.levels import IntraNodePhase
from scaffe.collectives.topology import Topology

SIMPLE = Machine(intra_latency=1, intra_bandwidth=10, inter_latency=5, inter_bandwidth=2, overhead=0.5,
                 sum_overhead=0.25, sum_bandwidth=100)
ONE_NODE, TWO_NODES, FLAT_8 = Topology([0, 0]), Topology([0, 1]), Topology.flat(8)


def time_of(collective: str, name: str, topology: Topology, n_bytes: int, chunk_bytes: int, machine=SIMPLE) -> float:
    return simulate(Setting(collective, name, topology, machine), n_bytes, chunk_bytes)


@pytest.mark.parametrize(("topology", "wire"), [(ONE_NODE, 1 + 100 / 10), (TWO_NODES, 5 + 100 / 2)])
def test_one_message(topology, wire):
    assert time_of("bcast", "C", topology, 100, 100) == pytest.approx(0.5 + wire + 0.5)
    assert time_of("reduce", "C", topology, 100, 100) == pytest.approx(0.5 + wire + 0.5 + 0.25 + 100 / 100)


@pytest.mark.parametrize("n_ranks", [2, 3, 8])
@pytest.mark.parametrize("n_chunks", [1, 5, 40])
def test_a_chain_takes_its_hops_and_then_a_chunk_each(n_ranks, n_chunks):
    """Of hops that cost o + L + c/B + o + s, the slowest stage, the wire, sets the pace."""
    chunk_bytes = 100
    hop = 0.5 + 5 + chunk_bytes / 2 + 0.5
    bcast = hop * (n_ranks - 1) + (n_chunks - 1) * chunk_bytes / 2
    reduce = bcast + (0.25 + chunk_bytes / 100) * (n_ranks - 1)
    for collective, expected in (("bcast", bcast), ("reduce", reduce)):
        took = time_of(collective, "C", Topology.flat(n_ranks), n_chunks * chunk_bytes, chunk_bytes)
        assert took == pytest.approx(expected)


def test_a_ring_takes_its_rounds():
    """Rounds of one block: o + L + b/B + o, the first half with sums; blocks in one chunk."""
    block = 800 / 8
    expected = 14 * (0.5 + 5 + block / 2 + 0.5) + 7 * (0.25 + block / 100)
    assert time_of("allreduce", "R", FLAT_8, 800, 800) == pytest.approx(expected)


def test_ranks_of_a_node_share_its_network_port():
    """1000 bytes by halves: 500 to the rank two places away, then 250 to the neighbour."""
    second_inter = 0.5 + 5 + 250 / 2 + 0.5 + 0.25 + 250 / 100
    assert time_of("reduce_scatter", "H", Topology.flat(4), 1000, 1000) == pytest.approx(
        0.5 + 5 + 500 / 2 + 0.5 + 0.25 + 500 / 100 + second_inter)
    second_intra = 0.5 + 1 + 250 / 10 + 0.5 + 0.25 + 250 / 100
    assert time_of("reduce_scatter", "H", Topology([0, 0, 1, 1]), 1000, 1000) == pytest.approx(
        0.5 + 5 + 2 * 500 / 2 + 0.5 + 0.25 + 500 / 100 + second_intra)


def test_ranks_of_a_node_take_its_ports_in_turn():
    """The same halves, with a port for each rank."""
    second_intra = 0.5 + 1 + 250 / 10 + 0.5 + 0.25 + 250 / 100
    took = time_of("reduce_scatter", "H", Topology([0, 0, 1, 1]), 1000, 1000, replace(SIMPLE, ports=2))
    assert took == pytest.approx(0.5 + 5 + 500 / 2 + 0.5 + 0.25 + 500 / 100 + second_intra)


def test_a_pass_takes_its_busiest_port_and_sum():
    """400 bytes on 4 ranks: each reads 3 other quarters and adds them; the owner of a part sends it to 3 others."""
    machine = replace(SIMPLE, pass_overhead=7)
    parts = tuple((start, start + 100, rank) for rank, start in enumerate((0, 100, 200, 300)))
    scatter = 7 + 1 + 300 / 10 + 300 / 100
    assert pass_time(IntraNodePhase("reduce_scatter", 0, 400, parts=parts), 4, machine) == pytest.approx(scatter)
    assert pass_time(IntraNodePhase("allgather", 0, 400, parts=parts), 4, machine) == pytest.approx(7 + 1 + 300 / 10)
    assert pass_time(IntraNodePhase("gather", 0, 400, 1, parts), 4, machine) == pytest.approx(7 + 1 + 300 / 10)
    # a quarter each again, but all results go to the root
    assert pass_time(IntraNodePhase("reduce", 0, 400, 0), 4, machine) == pytest.approx(7 + 1 + 600 / 10 + 300 / 100)


@pytest.mark.parametrize(("ports", "pace"), [(1, 2 * 128), (2, 128)])
def test_a_split_sum_goes_across_by_all_ports(ports, pace):
    """256 bytes, 2 nodes of 2 ranks: scatter, one message of 128 bytes each, gather into the root."""
    machine = replace(SIMPLE, ports=ports)
    across = 0.5 + 5 + pace / 2 + 0.5 + 0.25 + 128 / 100
    within = (1 + 128 / 10 + 128 / 100) + (1 + 128 / 10)
    took = predict(Setting("reduce", "SC", Topology([0, 0, 1, 1]), machine), 256, 256)
    assert took == pytest.approx(within + across)


def test_leaders_send_the_whole_buffer_whatever_the_ports():
    machine = replace(SIMPLE, ports=2)
    took = predict(Setting("bcast", "MC", Topology([0, 0, 1, 1]), machine), 400, 400)
    across = 0.5 + 5 + 400 / 2 + 0.5
    # half of it is read by the other rank itself, half is written to it by the leader
    assert took == pytest.approx(across + 1 + 400 / 10)


@pytest.mark.parametrize("n_nodes", [4, 20])
@pytest.mark.parametrize(("collective", "flat", "led", "split"), [
    ("reduce", "C", "MC", "SC"), ("allreduce", "R", "MR", "SR"), ("reduce_scatter", "R", "MR", "SR")])
def test_nodes_of_8_gpus_with_a_port_each_gain_from_splitting(n_nodes, collective, flat, led, split):
    """CaffeNet's parameters, 244 MB."""
    topology = Topology.from_ranks_per_node(8 * n_nodes, 8)
    by_flat, by_led, by_split = (predict(Setting(collective, name, topology, GPU_CLUSTER_2023), 244_000_000, 4 << 20)
                                 for name in (flat, led, split))
    assert by_split < by_led / 1.9
    assert by_split < by_flat / 2


@pytest.mark.parametrize("machine", [GPU_CLUSTER_2016, EMULATED_1_GBIT])
@pytest.mark.parametrize(("n_ranks", "per_node"), [(8, 1), (40, 8), (160, 16)])
@pytest.mark.parametrize("name", ["C", "B", "CB-8", "CC-8", "CCB-4-4"])
def test_long_messages_extend_what_events_say(machine, n_ranks, per_node, name):
    for collective in ("reduce", "bcast"):
        setting = Setting(collective, name, Topology.from_ranks_per_node(n_ranks, per_node), machine)
        n_bytes = (1 << 16) * 400 + 1000
        assert predict(setting, n_bytes, 1 << 16) == pytest.approx(simulate(setting, n_bytes, 1 << 16), rel=0.02)


@pytest.mark.parametrize("name", ["C", "B", "CC-8"])
def test_long_allreduce_extends_what_events_say(name):
    setting = Setting("allreduce", name, Topology.from_ranks_per_node(24, 4), EMULATED_1_GBIT)
    assert predict(setting, 300 << 16, 1 << 16) == pytest.approx(simulate(setting, 300 << 16, 1 << 16), rel=0.02)


@pytest.mark.parametrize(("collective", "name", "limit"), [("reduce", "C", 1.2), ("bcast", "C", 1.2),
                                                           ("allreduce", "R", 1.3 * 2 * 7 / 8)])
def test_8_nodes_come_near_the_wires_limit(collective, name, limit):
    """64 MB over 8 nodes at 1 Gbit/s in chunks of 256 KiB, as multiples of one pass over the wire."""
    setting = Setting(collective, name, FLAT_8, EMULATED_1_GBIT)
    assert predict(setting, 64 << 20, 256 << 10) < limit * (64 << 20) / EMULATED_1_GBIT.inter_bandwidth


def test_nothing_takes_no_time():
    assert predict(Setting("reduce", "C", FLAT_8, SIMPLE), 0, 10) == 0
    assert predict(Setting("allreduce", "R", Topology.flat(1), SIMPLE), 1000, 10) == 0


def test_4096_ranks_with_a_long_message():
    topology = Topology.from_ranks_per_node(4096, 16)
    binomial, chained = (predict(Setting("reduce", name, topology, GPU_CLUSTER_2016), 256 << 20, 4 << 20)
                         for name in ("B", "CC-16"))
    assert chained < binomial
    with pytest.raises(CommError, match="ring.*|allreduce by R on 4096 ranks takes some"):
        predict(Setting("allreduce", "R", topology, GPU_CLUSTER_2016), 256 << 20, 1 << 20)


def test_the_fastest_chunk_is_found():
    setting = Setting("reduce", "C", FLAT_8, EMULATED_1_GBIT)
    seconds, chunk_bytes = fastest(setting, 16 << 20, (1 << 10, 1 << 18, 1 << 24))
    assert chunk_bytes == 1 << 18
    assert seconds == predict(setting, 16 << 20, 1 << 18)


@pytest.mark.parametrize(("changes", "words"), [({"overhead": -1}, "overhead must be 0 or more, not -1"),
                                                ({"inter_bandwidth": 0}, "inter_bandwidth must be above 0"),
                                                ({"ports": 0}, "ports must be above 0")])
def test_machines_that_cannot_be_are_refused(changes, words):
    with pytest.raises(CommError, match=words):
        replace(SIMPLE, **changes)


def test_figures_are_written(tmp_path, capsys):
    assert figures.main(["--ranks", "64", "--ranks-per-node", "16", "--max-bytes", "4194304", "--out", str(tmp_path),
                         "--inter-bandwidth", "12e9"]) == 0
    printed = capsys.readouterr().out
    assert "CB-8" in printed and "4M" in printed and "64 GPUs, 16 per node" in printed
    content = json.loads((tmp_path / "figures.json").read_text())
    assert content["modelled"] is True
    assert content["machine"]["inter_bandwidth"] == 12e9
    assert [row["n_bytes"] for row in content["rows"]] == [1024 * 4**i for i in range(7)]
    for row in content["rows"]:
        assert row["seconds"][row["tuned"]] == min(row["seconds"][name] for name in figures.TUNED)
    for number in (11, 12):
        lines = ElementTree.parse(tmp_path / f"figure{number}.svg").findall(".//{http://www.w3.org/2000/svg}polyline")
        assert all(len(line.attrib["points"].split()) == 7 for line in lines)
        assert len(lines) == {11: 5, 12: 3}[number]
