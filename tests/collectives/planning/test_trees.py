"""Trees: known small ones by hand, and that any composition is one tree over all ranks."""

from __future__ import annotations

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import trees
from scaffe.collectives.planning.algorithm import parse_pattern
from scaffe.collectives.topology import Topology
from tests.collectives.cases import TREES, topologies


def test_chain():
    chain = trees.build(parse_pattern("C"), Topology.flat(4))
    assert chain.parents == (-1, 0, 1, 2)
    assert chain.children == ((1,), (2,), (3,), ())
    assert (chain.depths, chain.heights) == ((0, 1, 2, 3), (3, 2, 1, 0))


def test_binomial_tree_of_8():
    binomial = trees.build(parse_pattern("B"), Topology.flat(8))
    assert binomial.parents == (-1, 0, 0, 2, 0, 4, 4, 6)
    assert binomial.children[0] == (1, 2, 4)
    assert binomial.children[4] == (5, 6)
    assert binomial.heights[0] == 3


def test_chains_of_4_under_a_binomial_tree():
    composed = trees.build(parse_pattern("CB-4"), Topology.flat(16))
    assert composed.parents == (-1, 0, 1, 2, 0, 4, 5, 6, 0, 8, 9, 10, 8, 12, 13, 14)
    assert composed.children[0] == (1, 4, 8)  # the chain first, then leaders
    assert composed.heights[0] == 5


def test_three_levels():
    composed = trees.build(parse_pattern("CCB-2-2"), Topology.flat(8))
    assert composed.parents == (-1, 0, 0, 2, 0, 4, 4, 6)


def test_a_root_leads_its_group():
    composed = trees.build(parse_pattern("CB-4"), Topology.flat(8), root=5)  # order 5 6 7 0 | 1 2 3 4
    assert composed.parents == (7, 5, 1, 2, 3, -1, 5, 6)


def test_a_ring_is_no_tree():
    with pytest.raises(CommError, match="'R' is no tree"):
        trees.build(parse_pattern("R"), Topology.flat(4))


def test_a_last_short_group():
    assert trees.build(parse_pattern("CC-4"), Topology.flat(6)).parents == (-1, 0, 1, 2, 0, 4)


@pytest.mark.parametrize("name", TREES)
def test_one_tree_over_all_ranks(name):
    for n_ranks in range(1, 34):
        for topology in topologies(n_ranks):
            root = n_ranks // 2
            built = trees.build(parse_pattern(name), topology, root)
            assert built.parents[root] == -1
            assert sorted(child for below in built.children for child in below) == [
                rank for rank in range(n_ranks) if rank != root]
            for rank, parent in enumerate(built.parents):
                if rank != root:
                    assert rank in built.children[parent]
                    assert built.depths[rank] == built.depths[parent] + 1
                    assert built.heights[parent] > built.heights[rank]


@pytest.mark.parametrize("name", ["CB-node", "CC-node", "CCB-2-node"])
@pytest.mark.parametrize("root", [0, 4])
def test_by_node_each_other_node_is_left_once(name, root):
    topology = Topology([0, 1, 0, 1, 2, 2, 0, 1, 3])
    built = trees.build(parse_pattern(name), topology, root)
    crossing = [rank for rank, parent in enumerate(built.parents)
                if parent >= 0 and not topology.same_node(rank, parent)]
    leaving = sorted(topology.node_of_rank[rank] for rank in crossing)
    assert leaving == [node for node in range(4) if node != topology.node_of_rank[root]]


def test_two_trees_have_nobody_inside_both():
    for n_ranks in range(2, 34):
        for topology in topologies(n_ranks):
            first, second = trees.build_two_trees(topology, n_ranks // 2)
            assert len(first.children[n_ranks // 2]) == len(second.children[n_ranks // 2]) == 1
            for rank in range(n_ranks):
                if rank != n_ranks // 2:
                    assert not (first.children[rank] and second.children[rank])
                    assert max(len(first.children[rank]), len(second.children[rank])) <= 2
            assert max(first.heights) == max(second.heights) == (n_ranks - 1).bit_length()
