"""After a loss every element of a table has one giver, whose node has the shard's memory if any rank of it is left."""

import itertools

import numpy as np
import pytest

from scaffe.collectives.server.remains import remains_of
from scaffe.collectives.server.roles import Roles
from scaffe.collectives.server.table import Table
from scaffe.collectives.topology import Topology


@pytest.mark.parametrize("nodes", [[0, 0, 0, 0, 0], [0, 0, 1, 1, 2], [0, 1, 0, 1, 0]])
@pytest.mark.parametrize("n_elems", [3, 23])
@pytest.mark.parametrize("n_servers", [0, 2])
def test_each_element_comes_from_its_shards_node_else_from_a_copy(nodes, n_elems, n_servers):
    roles, table = Roles.of(Topology(nodes), n_servers), Table("t", 1, n_elems)
    for n_left in range(1, 6):
        for left in itertools.combinations(range(5), n_left):
            found = remains_of(roles, table, left)
            covered = np.zeros(n_elems, int)
            for shard, start, stop, giver, is_whole in found:
                covered[start:stop] += 1
                owner = shard if not n_servers else 5 - n_servers + shard
                on_its_node = [rank for rank in left if nodes[rank] == nodes[owner]]
                assert is_whole == bool(on_its_node)
                assert giver == (owner if owner in left else on_its_node[0] if on_its_node else left[0])
            assert (covered == 1).all()
