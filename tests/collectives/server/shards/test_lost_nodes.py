"""Real ranks: a node that holds shards is killed, and another one has their histories, as they were a little before."""

import json
from pathlib import Path

import numpy as np
import pytest

from scaffe.collectives.server.shards.copies import MOST_ROUNDS
from tests.collectives.fault_tolerance.test_losses import job_with_losses

pytestmark = pytest.mark.mpi_job
HERE = Path(__file__).parent
N_CLOCKS = 40  # as lost_node_worker.py has it


def reference(n_updates, n_workers):
    """The value and the momentum of any element after so many updates, in float32."""
    value = momentum = np.float32(0)
    for clock in range(n_updates):
        momentum = np.float32(0.5) * momentum + np.float32(n_workers * (clock % 3))
        value -= momentum
    return value, momentum


@pytest.mark.parametrize(("nodes", "n_servers", "lost", "lost_shards"), [
    ("0,1,2", 0, 1, [1]),
    ("0,1,1", 2, 1, [0, 1]),  # all servers
    pytest.param("0,0,1,1,2", 0, 1, [2, 3], marks=pytest.mark.thorough),
])
def test_histories_are_those_of_a_recent_moment_and_values_the_last_pulled(nodes, n_servers, lost, lost_shards):
    result = job_with_losses(len(nodes.split(",")), HERE / "lost_node_worker.py", nodes, n_servers, lost)
    assert result.returncode == 0, result.stderr[-3000:]
    parts = json.loads(next(line for line in result.stdout.splitlines() if line.startswith("[[")))
    n_workers = len(nodes.split(",")) - n_servers
    assert [shard for shard, _, is_copy, _ in parts if is_copy] == lost_shards
    for _, is_all, is_copy, kinds in parts:
        assert is_all
        for value, momentum, n_updates in kinds:
            assert momentum == reference(int(n_updates), n_workers)[1]
            assert N_CLOCKS - 1 - (MOST_ROUNDS if is_copy else 0) <= n_updates <= N_CLOCKS
            # the giver may not have pulled yet what rank 0 had when it killed the others: one clock less
            known = [reference(n, n_workers)[0] for n in (N_CLOCKS - 2, N_CLOCKS - 1, N_CLOCKS)]
            assert value in (known if is_copy else [reference(int(n_updates), n_workers)[0]])
