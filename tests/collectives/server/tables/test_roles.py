"""After a loss every element of a table has one giver, whose node has the shard's memory if any rank of it is left,
else the second copy of its histories."""

import itertools

import numpy as np
import pytest

from scaffe.collectives.server.tables.roles import Roles, recovery_sources
from scaffe.collectives.server.tables.table import Table
from scaffe.collectives.topology import Topology


@pytest.mark.parametrize("nodes", [[0, 0, 0, 0, 0], [0, 0, 1, 1, 2], [0, 1, 0, 1, 0]])
@pytest.mark.parametrize("n_elems", [3, 23])
@pytest.mark.parametrize("n_servers", [0, 2])
@pytest.mark.parametrize("keeps_copies", [False, True])
def test_each_element_comes_from_its_shards_node_else_from_a_copy(nodes, n_elems, n_servers, keeps_copies):
    roles, table = Roles.of(Topology(nodes), n_servers, keeps_copies=keeps_copies), Table("t", 1, n_elems)
    n_copies = 0
    for n_left in range(1, 6):
        for left in itertools.combinations(range(5), n_left):
            found = recovery_sources(roles, table, left)
            covered = np.zeros(n_elems, int)
            for shard, start, stop, giver, is_whole, is_copy in found:
                covered[start:stop] += 1
                owner = shard if not n_servers else 5 - n_servers + shard
                on_its_node = [rank for rank in left if nodes[rank] == nodes[owner]]
                with_copy = [rank for rank in left if keeps_copies and nodes[rank] == next_with_workers(roles, owner)]
                assert is_whole == bool(on_its_node or with_copy)
                assert is_copy == (not on_its_node and bool(with_copy))
                assert giver == (owner if owner in left else [*on_its_node, *with_copy, left[0]][0])
                n_copies += is_copy
            assert (covered == 1).all()
    assert bool(n_copies) == (keeps_copies and len(set(nodes)) > 1)


def next_with_workers(roles, owner):
    """By looking at each: the node of the first worker on a later node, cyclically; None if all are on the owner's."""
    nodes = roles.topology.node_of_rank
    n_nodes = max(nodes) + 1
    steps = [(nodes[worker] - nodes[owner]) % n_nodes for worker in roles.workers]
    return (nodes[owner] + min(step for step in steps if step)) % n_nodes if any(steps) else None


def test_the_rank_that_receives_a_copy_is_the_one_that_gets_the_shards_last_rows():
    """So it is still there when the last piece comes."""
    for nodes in ([0, 0, 1, 1, 2], [0, 1, 1, 1], [0, 1, 0, 2, 2, 2]):
        for n_servers in range(3):
            roles = Roles.of(Topology(nodes), n_servers, keeps_copies=True)
            for shard in range(len(roles.shards)):
                assert shard in roles.proxies_of(roles.copier(shard))
                assert nodes[roles.copier(shard)] != nodes[roles.shards[shard]]
