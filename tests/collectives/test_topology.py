"""Nodes, leaders and groups."""

from __future__ import annotations

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.topology import Topology, cut

UNEVEN = Topology(["b", "a", "b", "c", "a", "b"])


def test_nodes_are_numbered_by_their_first_rank():
    assert UNEVEN.node_of_rank == (0, 1, 0, 2, 1, 0)
    assert UNEVEN.nodes == ((0, 2, 5), (1, 4), (3,))
    assert (UNEVEN.n_ranks, UNEVEN.n_nodes, UNEVEN.leaders) == (6, 3, (0, 1, 3))
    assert (UNEVEN.leader(5), UNEVEN.node_rank(5)) == (0, 2)
    assert (UNEVEN.same_node(0, 5), UNEVEN.same_node(0, 1)) == (True, False)


def test_same_places_are_the_same_topology():
    assert Topology(["x", "y", "x"]) == Topology([0, 5, 0])
    assert len({Topology(["x", "y", "x"]), Topology([0, 5, 0])}) == 1
    assert Topology([0, 0, 1]) != Topology([0, 1, 1])


@pytest.mark.parametrize(("topology", "shape"), [
    (Topology.from_ranks_per_node(8, 2), "4x2"), (Topology.from_ranks_per_node(7, 3), "2x3+1x1"),
    (UNEVEN, "1x3+1x2+1x1"), (Topology.flat(3), "3x1"), (Topology([0]), "1x1"),
])
def test_shape(topology, shape):
    assert topology.shape == shape


@pytest.mark.parametrize(("root", "order"), [
    (0, (0, 2, 5, 1, 4, 3)), (2, (2, 5, 0, 1, 4, 3)), (4, (4, 1, 3, 0, 2, 5)), (3, (3, 0, 2, 5, 1, 4)),
])
def test_order_starts_at_the_root_and_keeps_nodes_together(root, order):
    assert UNEVEN.order(root) == order


def test_groups_may_span_nodes():
    assert UNEVEN.groups(4) == [(0, 2, 5, 1), (4, 3)]
    assert UNEVEN.groups(2, root=4) == [(4, 1), (3, 0), (2, 5)]
    assert UNEVEN.groups(100) == [(0, 2, 5, 1, 4, 3)]


def test_groups_by_node_have_unequal_sizes():
    assert UNEVEN.groups_by_node() == [(0, 2, 5), (1, 4), (3,)]
    assert UNEVEN.groups_by_node(root=4) == [(4, 1), (3,), (0, 2, 5)]
    assert UNEVEN.cut_by_node((0, 1, 3)) == [(0,), (1,), (3,)]


def test_what_cannot_be_is_refused():
    with pytest.raises(CommError, match="at least 1 rank, got none"):
        Topology([])
    with pytest.raises(CommError, match="at least 1 rank, not 0"):
        Topology.from_ranks_per_node(4, 0)
    with pytest.raises(CommError, match="at least 1 rank, not 0"):
        cut((0, 1), 0)
    with pytest.raises(CommError, match="below 6, not 6"):
        UNEVEN.order(6)
