"""A parameter server outlives its ranks: workers go on, with the values and histories that the lost shards had."""

import re

import numpy as np
import pytest

from scaffe.collectives.server.shards.copies import MOST_ROUNDS
from scaffe.files import read_state
from tests.scaffe.training.fault_tolerance.runs import make, train, weights

pytestmark = pytest.mark.mpi_job


@pytest.mark.parametrize(("n_ranks", "flags", "victims", "nodes"), [
    (4, ("-strategy", "ssp", "-slack", "0"), "0:6", {}),
    pytest.param(4, ("-strategy", "ssp", "-slack", "2"), "0:4,1:4", {"SCAFFE_RANKS_PER_NODE": "2"},  # a node, by number
                 marks=pytest.mark.thorough),
    pytest.param(4, ("-strategy", "ssp", "-slack", "2", "-history_copies", "0"), "0:4,1:4",
                 {"SCAFFE_RANKS_PER_NODE": "2"}, marks=pytest.mark.thorough),
    (4, ("-strategy", "downpour", "-n_sync", "2"), "2:5,3:7:STOP", {"SCAFFE_DEADLINE": "3"}),
    pytest.param(6, ("-strategy", "ssp", "-servers", "2", "-slack", "0"), "0:4:KILL:4,1:7,2:10:KILL:5", {},
                 marks=pytest.mark.thorough),  # both servers
    pytest.param(5, ("-strategy", "ssp", "-servers", "1", "-slack", "1"), "0:4:KILL:4", {"SCAFFE_RANKS_PER_NODE": "4"},
                 marks=pytest.mark.thorough),
])
def test_workers_go_on(tmp_path, databases, undisturbed, n_ranks, flags, victims, nodes):
    folder = make(tmp_path, databases, victims)
    with (folder / "solver.prototxt").open("a") as solver:
        solver.write("snapshot: 1\n")  # the one that is due when they go on too
    result = train(folder, *flags, "-on_rank_loss", "shrink", n_ranks=n_ranks, **nodes)
    assert result.returncode == 0, result.stderr
    assert "Optimization Done" in result.stderr
    n_left = n_ranks - len(victims.split(","))
    assert re.findall(r"; (\d) go on", result.stderr)[-1] == str(n_left), result.stderr
    are_saved = "-history_copies" in flags
    assert ("The histories of lost ranks are those of " in result.stderr) == are_saved  # a snapshot's
    is_second = "SCAFFE_RANKS_PER_NODE" in nodes and not are_saved
    assert ("The histories of a lost node's shards are those of their second copies" in result.stderr) == is_second
    apart = np.linalg.norm(weights(tmp_path) - undisturbed) / np.linalg.norm(undisturbed)
    assert apart < (1e-5 if victims == "0:6" else 0.3)  # an update more or less, and its order


@pytest.mark.thorough
@pytest.mark.parametrize(("strategy", "apart"), [
    (("ssp", "-slack", "0"), 1e-5), (("downpour", "-n_sync", "2"), 0.3)])  # an update more or less, and its order
def test_tables_in_a_file_outlive_a_rank(tmp_path, databases, strategy, apart):
    """The file is another one after that, of fewer ranks."""
    found = []
    for name, victims, n_ranks, flags in (("alone", "", 1, ()), ("limited", "0:6", 4, (
            "-strategy", *strategy, "-on_rank_loss", "shrink", "-memory", "85%"))):
        folder = make(tmp_path / name, databases, victims)
        net = folder / "net.prototxt"
        net.write_text(net.read_text().replace("num_output: 24", "num_output: 12000"))
        result = train(folder, *flags, n_ranks=n_ranks)
        assert result.returncode == 0, result.stderr
        found.append(weights(folder))
    assert re.findall(r"; (\d) go on", result.stderr) == ["3"]
    assert len(re.findall("Memory: .* do not move; ", result.stderr)) == 2, result.stderr
    assert np.linalg.norm(found[1] - found[0]) < apart * np.linalg.norm(found[0])


def cooling(folder, databases, victims):
    """A run whose rate is 0 from iteration 5 on, so that each update multiplies the momentum by 0.9."""
    solver = make(folder, databases, victims) / "solver.prototxt"
    solver.write_text(solver.read_text().replace('lr_policy: "fixed"', 'lr_policy: "step" stepsize: 5 gamma: 0')
                      .replace("max_iter: 14", "max_iter: 30 snapshot: 20"))
    return folder


def histories(folder):
    """Of all parameters at the end, in one row."""
    return np.concatenate([np.ravel(blob) for blob in read_state(folder / "run_iter_30.solverstate").history])


@pytest.fixture(scope="module")
def cooled(tmp_path_factory, databases):
    folder = cooling(tmp_path_factory.mktemp("cooled"), databases, "")
    result = train(folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.parametrize(("victims", "is_resumed"), [
    ("0:27:KILL:1", False),
    ("0:3:KILL:1", True),  # before the first piece is sent: the copy has what was restored
])
def test_a_server_whose_node_is_lost_leaves_its_momentum_behind(tmp_path, databases, cooled, victims, is_resumed):
    """How old the second copy was shows at the end, as a power of 0.9, the same for all that the server held."""
    flags = ("-snapshot", str(cooled / "run_iter_20.solverstate")) if is_resumed else ()
    result = train(cooling(tmp_path, databases, victims), "-strategy", "ssp", "-slack", "0", "-servers", "2",
                   "-on_rank_loss", "shrink", *flags, n_ranks=3, SCAFFE_RANKS_PER_NODE="1")
    assert result.returncode == 0, result.stderr
    line = "histories of a lost node's shards are those of their second copies, at most 16 rounds of updates old"
    assert line in result.stderr
    found, expected = histories(tmp_path), histories(cooled)
    has_moved = np.abs(expected) > 1e-12
    assert has_moved.mean() > 0.5
    ages = -np.log(found[has_moved] / expected[has_moved]) / np.log(0.9)
    np.testing.assert_allclose(ages, np.round(ages), atol=0.02)
    ages = np.unique(np.round(ages))
    assert set(ages) <= set(range(-1, MOST_ROUNDS + 1))  # -1: of the shard that is left, whose last update is redone
    assert max(ages) in (2, 3) or not is_resumed  # the updates before the loss, and perhaps the one under way
    assert len(ages) <= 3
