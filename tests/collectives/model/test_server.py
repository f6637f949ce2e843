"""The model of a parameter server against closed forms, the wires' limits and the event simulation; its figures."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.model import paper_figures as figures
from scaffe.collectives.model.cost import Setting, simulate
from scaffe.collectives.model.machine import EMULATED_1_GBIT, GPU_CLUSTER_2016, Machine
from scaffe.collectives.model.server import Place, clock_seconds, clocks_per_second, exchange_seconds
from scaffe.collectives.topology import Topology
from scaffe.errors import UsageError

SIMPLE = Machine(intra_latency=1, intra_bandwidth=10, inter_latency=5, inter_bandwidth=2, overhead=0.5,
                 sum_overhead=0.25, sum_bandwidth=100)
FREE = Machine(intra_latency=0, intra_bandwidth=1e99, inter_latency=0, inter_bandwidth=2, overhead=0,
               sum_overhead=0, sum_bandwidth=1e99)


def test_two_workers_on_two_nodes_exchange_halves():
    """Each way: latency, half of 1000 bytes over the port, and the rank's own work beside it, in two parts."""
    work = 2 * 0.5
    update = 5 + 500 / 2 + (work + 0.25 + 500 / 100) / 2
    read = 5 + 500 / 2 + work / 2
    assert clock_seconds(Place(2, 1, SIMPLE), 1000) == pytest.approx(update + read)


@pytest.mark.parametrize(("n_nodes", "per_node"), [(2, 1), (4, 1), (8, 1), (4, 16)])
def test_a_clock_comes_down_to_what_the_links_carry(n_nodes, per_node):
    """A node sends the sum of its workers to the other nodes' shards, and gets as much back."""
    limit = 2 * (n_nodes - 1) / n_nodes * 1e6 / 2
    assert clock_seconds(Place(n_nodes * per_node, per_node, FREE), 10**6) == pytest.approx(limit)


@pytest.mark.parametrize(("server_nodes", "limit"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_servers_of_their_own_are_as_fast_as_their_links(server_nodes, limit):
    assert clock_seconds(Place(4, 1, FREE, server_nodes), 10**6) == pytest.approx(2 * limit * 1e6 / 2)


@pytest.mark.parametrize(("n_nodes", "limit"), [(4, 2 * 3 / 4), (8, 2 * 7 / 8)])
def test_64_mib_at_1_gbit_are_within_a_few_percent_of_the_wire(n_nodes, limit):
    wire = limit * (64 << 20) / EMULATED_1_GBIT.inter_bandwidth
    assert wire < clock_seconds(Place(n_nodes, 1, EMULATED_1_GBIT), 64 << 20) < 1.05 * wire


def test_one_worker_waits_for_nobody():
    assert clock_seconds(Place(1, 1, SIMPLE), 1000) == exchange_seconds(Place(1, 1, SIMPLE), 1000) == 0


@pytest.mark.parametrize("n_workers", [4, 16])
def test_the_ring_is_what_events_say(n_workers):
    """Long messages, for which a ring beats halving: its closed form against the simulated events."""
    topology = Topology.from_ranks_per_node(n_workers, 1)
    simulated = sum(simulate(Setting(collective, "R", topology, EMULATED_1_GBIT), 64 << 20, 64 << 20)
                    for collective in ("reduce_scatter", "allgather"))
    assert exchange_seconds(Place(n_workers, 1, EMULATED_1_GBIT), 64 << 20) == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize(("n_workers", "per_node"), [(8, 1), (16, 4)])
def test_halving_is_what_events_say(n_workers, per_node):
    """Short messages, for which halving beats a ring."""
    topology = Topology.from_ranks_per_node(n_workers, per_node)
    simulated = sum(simulate(Setting(collective, name, topology, GPU_CLUSTER_2016), 4096, 4096)
                    for collective, name in (("reduce_scatter", "H"), ("allgather", "D")))
    assert exchange_seconds(Place(n_workers, per_node, GPU_CLUSTER_2016), 4096) == pytest.approx(simulated, rel=0.06)


def test_a_server_loses_where_messages_are_many_and_short():
    short, long = (clock_seconds(Place(4096, 16, GPU_CLUSTER_2016), n_bytes)
                   / exchange_seconds(Place(4096, 16, GPU_CLUSTER_2016), n_bytes) for n_bytes in (1 << 14, 1 << 30))
    assert short > 2
    assert long < 1


def test_slack_hides_workers_that_are_late_in_turn():
    """Each of two workers needs 1 s, and 3 s in every other iteration: in turn, so that both need 2 s on average."""
    turns = np.where((np.arange(400)[:, None] + np.arange(2)) % 2, 3.0, 1.0)
    assert clocks_per_second(0.0, turns, 0) == pytest.approx(1 / 3, rel=0.01)
    assert clocks_per_second(0.0, turns, 1) == pytest.approx(1 / 2, rel=0.01)
    assert clocks_per_second(0.0, turns, np.inf) == pytest.approx(1 / 2)
    assert clocks_per_second(1.0, turns, 0) == pytest.approx(1 / 4, rel=0.01)


def test_slack_does_not_hide_a_worker_that_is_always_late():
    always = np.where(np.arange(3) == 1, 2.0, 1.0) * np.ones((300, 1))
    for slack in (0, 3):
        assert clocks_per_second(0.0, always, slack) == pytest.approx(1 / 2, rel=0.02)
    assert clocks_per_second(0.0, always, np.inf) == pytest.approx((1 + 1 + 1 / 2) / 3)


@pytest.mark.parametrize(("arguments", "words"), [
    ((0, 1, SIMPLE), "n_workers must be 1 or more, not 0"), ((1, 0, SIMPLE), "per_node must be 1 or more, not 0"),
    ((1, 1, SIMPLE, -1), "server_nodes must be 0 or more, not -1")])
def test_places_that_cannot_be(arguments, words):
    with pytest.raises(CommError, match=words):
        Place(*arguments)


def test_figures_are_written(tmp_path, capsys):
    assert figures.main(["-server", "-bytes", "1048576", "-out", str(tmp_path / "made")]) == 0
    printed = capsys.readouterr().out
    assert "slack 3" in printed and "no server" in printed and "4096" in printed
    content = json.loads((tmp_path / "made" / "server.json").read_text())
    assert content["modelled"] is True
    assert [row["n_workers"] for row in content["rows"]] == [16, 64, 256, 1024, 4096]
    for row in content["rows"]:
        assert row["even"]["slack 0"] == pytest.approx(1 / (0.2 + row["clock"]))
        assert row["late"]["slack 0"] <= row["late"]["slack 1"] <= row["late"]["slack 3"] <= row["late"]["slack inf"]
    lines = ElementTree.parse(tmp_path / "made" / "server.svg").findall(".//{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [5] * 5


@pytest.mark.parametrize(("flag", "words"), [(["-bytes", "0"], "bytes must be a whole number from 1 to 2\\^46"),
                                             (["-late_share", "2"], "late_share must be a number from 0 to 1,"),
                                             (["-compute", "-1"], "compute must be a number from 0 to"),
                                             (["-late_times", "0.5"], "late_times must be a number from 1 to")])
def test_numbers_that_cannot_be(flag, words):
    with pytest.raises(UsageError, match=words):
        figures.main(["-server", *flag])
