"""Which algorithms are worth measuring."""

from __future__ import annotations

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import COLLECTIVES, parse
from scaffe.collectives.planning.planners import require
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.tune import candidates


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_candidates_can_do_the_collective(collective):
    for topology in (Topology.flat(1), Topology([0] * 4), Topology.flat(8), Topology.from_ranks_per_node(24, 8)):
        found = candidates(collective, topology)
        assert found[0] == "mpi"
        assert len(found) == len(set(found))
        for name in found:
            require(collective, parse(name), topology)


def test_candidates_follow_the_topology():
    assert candidates("reduce", Topology.flat(1)) == ["mpi"]
    assert candidates("reduce", Topology([0] * 4)) == ["mpi", "M", "C", "B", "H", "T"]
    assert candidates("bcast", Topology.from_ranks_per_node(8, 2)) == [
        "mpi", "MC", "MB", "MT", "SC", "SB", "ST", "C", "B", "T", "CB-node", "CB-4", "CC-node", "CC-4"]
    with pytest.raises(CommError, match="'gather'"):
        candidates("gather", Topology.flat(2))
