"""A parameter server outlives its ranks: workers go on, with the values and histories that the lost shards had."""

import re

import numpy as np
import pytest

from tests.scaffe.training.survival.runs import make, train, weights

pytestmark = pytest.mark.mpi_job


@pytest.mark.parametrize(("n_ranks", "flags", "victims", "nodes"), [
    (4, ("-strategy", "ssp", "-slack", "0"), "0:6", {}),
    pytest.param(4, ("-strategy", "ssp", "-slack", "2"), "0:4,1:4", {"SCAFFE_RANKS_PER_NODE": "2"},  # a node, by number
                 marks=pytest.mark.thorough),
    (4, ("-strategy", "downpour", "-n_sync", "2"), "2:5,3:7:STOP", {"SCAFFE_DEADLINE": "3"}),
    (6, ("-strategy", "ssp", "-servers", "2", "-slack", "0"), "0:4:KILL:4,1:7,2:10:KILL:5", {}),  # both servers
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
    assert ("The histories of lost ranks are those of " in result.stderr) == ("SCAFFE_RANKS_PER_NODE" in nodes)
    apart = np.linalg.norm(weights(tmp_path) - undisturbed) / np.linalg.norm(undisturbed)
    assert apart < (1e-5 if victims == "0:6" else 0.3)  # an update more or less, and its order
