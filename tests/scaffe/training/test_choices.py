"""What a run decides by itself: its strategy and its buckets."""

from types import SimpleNamespace

import pytest

import scaffe as caffe
from scaffe.cli import main as cli
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import HOST, NVLINK, ONE_CARD, PCI_EXPRESS, Links
from scaffe.collectives.tuning.table import Choice, TuningEntry, TuningKey
from scaffe.training.strategies import Roles, Strategy, choose_strategy, strategies
from scaffe.training.strategies.transfers import auto_bucket_bytes, plan_buckets, trainable_intervals
from tests.scaffe.runs import write_solver
from tests.scaffe.training.test_timeline import NET


@pytest.mark.parametrize("ranks_per_node, n_ranks, expected", [
    (1, 1, "sc-b"), (2, 2, "sc-b"), (8, 8, "sc-b"), (1, 2, "sc-rs"), (1, 4, "sc-rs"), (2, 4, "sc-rs"), (4, 6, "sc-rs")])
def test_strategy_follows_the_nodes(ranks_per_node, n_ranks, expected):
    chosen = choose_strategy(Topology.from_ranks_per_node(n_ranks, ranks_per_node))
    assert chosen == expected
    assert chosen in strategies.names()
    assert choose_strategy(Topology.flat(4), can_scatter=False) == "sc-obr"


@pytest.mark.parametrize("ranks_per_node, n_ranks, links, expected", [
    (1, 1, Links(ONE_CARD), "sc-b"), (8, 8, Links(NVLINK, 8), "sc-rs"), (8, 32, Links(NVLINK, 8), "sc-rs"),
    (4, 4, Links(PCI_EXPRESS), "sc-rs"), (2, 2, Links(HOST), "sc-rs"), (4, 4, Links(ONE_CARD), "sc-b"),
    (2, 4, Links(ONE_CARD, 1), "sc-rs")])
def test_gpus_sum_while_they_compute(ranks_per_node, n_ranks, links, expected):
    topology = Topology.from_ranks_per_node(n_ranks, ranks_per_node)
    assert choose_strategy(topology, links=links) == expected
    if expected == "sc-rs":
        assert choose_strategy(topology, can_scatter=False, links=links) == "sc-obr"


@pytest.mark.parametrize("line, said", [
    ("-strategy sc-b -bucket 0", "-bucket is a flag of downpour, sc-ob, sc-ob-naive, sc-obr, sc-rs, ssp, not of "
     "-strategy sc-b"),
    ("-strategy sc-rs -pause 3", "-pause is a flag of mine, not of -strategy sc-rs"),
    ("-pause 3", "-pause is a flag of mine, not of -strategy auto"),
    ("-strategy mine -wire bf16", "-wire is a flag of sc-b, sc-ob, sc-ob-naive, sc-obr, sc-rs, not of -strategy mine"),
    ("-strategy sc-rs -bucket many", "-bucket must be auto or a whole number from 0 to 2^46, got 'many'"),
    ("-strategy sc-rs -bucket -1", "-bucket must be auto or a whole number from 0 to 2^46, got '-1'"),
    ("-strategy mine -pause soon", "-pause must be a whole number from -2^31 to 2^31-1, got 'soon'")])
def test_another_strategys_flag_is_refused_in_one_line(own_strategy, capsys, line, said):
    assert cli.main(["train", "-solver", "none", *line.split()]) == 2
    assert capsys.readouterr().err.startswith(f"scaffe: train: {said}")


@pytest.mark.parametrize("line", ["-strategy mine -pause 7", "-strategy mine -bucket auto", "-strategy mine"])
def test_a_strategy_in_a_file_of_its_own_has_its_flags(own_strategy, tmp_path, line):
    solver = write_solver(tmp_path, NET, test_iter=None, test_interval=None, max_iter=2)
    assert cli.main(["train", "-solver", str(solver), *line.split()]) == 0
    assert own_strategy.pauses == [7 if "7" in line else 5] * 2


@pytest.fixture
def own_strategy(monkeypatch):
    """A strategy as a file of its own would register it: one rank updates everything, after a pause of its own."""
    strategies.names()
    monkeypatch.setattr(strategies, "_units", dict(strategies._units))

    @strategies.register("mine")
    class Mine(Strategy):
        roles = Roles(lambda flags: flags.flag("pause", 5, "how long to wait"))
        pauses = []

        def apply(self, rate, iteration):
            self.pauses.append(self.replica.options.pause)
            self.replica.updater.update(rate, iteration)

    return Mine


def test_bucket_follows_the_table():
    long = TuningEntry(TuningKey("reduce", "host", 4, "4x1"), (Choice(1000, "mpi", 60), Choice(700_000, "B", 60),
                                                   Choice(None, "C", 60)))
    flat = TuningEntry(TuningKey("bcast", "host", 4, "4x1"), (Choice(None, "C", 60),))
    assert (long.bandwidth_bytes, flat.bandwidth_bytes) == (700_000, 0)
    assert auto_bucket_bytes([long.bandwidth_bytes, flat.bandwidth_bytes]) == 2_800_000
    assert auto_bucket_bytes([]) == 0


def test_buckets_are_runs_of_whole_layers():
    places = [(0, slice(0, 16)), (2, slice(16, 48)), (3, slice(64, 80)), (5, slice(80, 112)), (7, slice(112, 2000))]
    found = [(b.first_layer, b.last_layer, b.place.start, b.place.stop) for b in plan_buckets(places, 4, 200)]
    assert found == [(0, 2, 0, 48), (3, 5, 64, 112), (7, 7, 112, 2000)]
    assert len(plan_buckets(places, 4, 0)) == 5


def test_frozen_layers_do_not_travel():
    """Layer 1 has no rate at all; layer 2's bias has none, but travels with its weights."""
    params = [(0, 1.0, 0, 10), (1, 0.0, 16, 20), (1, 0.0, 32, 33), (2, 1.0, 48, 80), (2, 0.0, 80, 81)]
    flat = SimpleNamespace(params=[SimpleNamespace(layer_index=layer, lr_mult=rate) for layer, rate, _, _ in params],
                           slices=[slice(start, stop) for _, _, start, stop in params], n_elems=96)
    assert trainable_intervals(flat) == ([(0, slice(0, 16)), (2, slice(48, 96))], [slice(16, 32), slice(32, 48)])


def test_one_rank_pays_for_no_seam(tmp_path):
    solver = caffe.get_solver(str(write_solver(tmp_path, NET, test_iter=None, test_interval=None)))
    net = solver.net._net  # the net behind pycaffe's
    assert net.before_forward == net.after_backward == []
