"""Every planner on 1 to 33 ranks, ragged sizes, every root, adversarial timing; its sum order; its cost."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import algorithm, planners, trees
from scaffe.collectives.planning.algorithm import parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.topology import Topology
from tests.collectives.cases import (
    EVERY_NAME,
    N_ELEMS,
    RANKS,
    ROOTED,
    check,
    float_payload,
    rank_counts,
    simulate,
    topologies,
)
from tests.collectives.model.simulator import count, measured_cost, validate


def planner(collective, name):
    """The planner, with what it says of itself."""
    return algorithm.registry()[collective, parse_pattern(name).shape]


def sums_that_depend_on_no(*what):
    return [pair for pair in EVERY_NAME if "reduce" in pair[0] and not {*what} & {*planner(*pair).sum_depends_on}]


every_name = pytest.mark.parametrize(("collective", "name"), EVERY_NAME)


@rank_counts
@every_name
def test_right_on_any_rank_count(collective, name, rank_counts):
    for n_ranks in rank_counts:
        for seed, topology in enumerate(topologies(n_ranks)):
            root = 7 * n_ranks // 3 % n_ranks if collective in ("reduce", "bcast") else 0
            check(collective, name, Call(topology, 37 if seed else 2 * n_ranks + 1, 5, root), seed=seed)


@every_name
@pytest.mark.parametrize("n_ranks", RANKS)
def test_right_on_any_size_and_chunk(collective, name, n_ranks):
    for n_elems in N_ELEMS:
        for chunk_elems in (1, 36, 1000):
            check(collective, name, Call(topologies(n_ranks)[1], n_elems, chunk_elems), seed=n_elems)
            check(collective, name, Call(topologies(n_ranks)[2], n_elems, chunk_elems), eager=True)


@pytest.mark.parametrize(("collective", "name"), ROOTED)
@pytest.mark.parametrize("n_ranks", [*RANKS, 13])
def test_right_at_every_root(collective, name, n_ranks):
    for root in range(n_ranks):
        check(collective, name, Call(topologies(n_ranks)[root % 3], 11, 3, root), seed=root)


@pytest.mark.parametrize(("collective", "name"), [pair for pair in EVERY_NAME if pair[0] in ("reduce_scatter",
                                                                                              "allgather")])
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 5, 6, 8, 13])
def test_parts_may_differ_in_length(collective, name, n_ranks):
    counts = tuple((rank * 7 + 3) % 11 if rank % 3 else 0 for rank in range(n_ranks))
    check(collective, name, Call(topologies(n_ranks)[2], sum(counts), 4, counts=counts), seed=1)


@pytest.mark.parametrize(("collective", "name"), sums_that_depend_on_no("position", "chunks"))
@pytest.mark.parametrize("n_ranks", [2, 5, 8, 13])
def test_layer_by_layer_gives_the_bits_of_the_whole_buffer(collective, name, n_ranks):
    """Reductions of slices of a buffer, in any chunks, against one reduction of it."""
    topology, payload = topologies(n_ranks)[1], float_payload(n_ranks, 60)
    whole = _reduced(collective, name, topology, payload, 60)
    for chunk_elems in (1, 7, 60):
        layers = [_reduced(collective, name, topology, payload[:, start:stop], chunk_elems)
                  for start, stop in ((0, 1), (1, 24), (24, 60))]
        assert np.concatenate(layers).tobytes() == whole.tobytes()


@pytest.mark.parametrize(("collective", "name"), sums_that_depend_on_no("chunks"))
def test_chunk_length_does_not_change_bits(collective, name):
    payload = float_payload(7, 60)
    whole = _reduced(collective, name, topologies(7)[1], payload, 60)
    assert all(_reduced(collective, name, topologies(7)[1], payload, chunk_elems, seed=chunk_elems).tobytes()
               == whole.tobytes() for chunk_elems in (1, 4, 7))


@pytest.mark.parametrize("name", ["C", "CB-4", "R", "H", "D"])
@pytest.mark.parametrize("n_ranks", [3, 6, 8])
def test_allreduce_leaves_the_same_bits_everywhere(name, n_ranks):
    buffers = simulate("allreduce", name, Call(topologies(n_ranks)[0], 40, 3), float_payload(n_ranks, 40), seed=3)
    assert len({buffer.tobytes() for buffer in buffers}) == 1


def test_chain_keeps_the_operands_order():
    """op(own, received) = 2 own + received on ranks 0 <- 1 <- 2 <- 3 is 2 a + 2 b + 2 c + d."""
    payload = np.array([[1.0], [10.0], [100.0], [1000.0]])
    call = Call(Topology.flat(4), 1, 1)
    buffers = simulate("reduce", "C", call, payload, operation=lambda own, received: 2 * own + received)
    assert buffers[0][0] == 2 * 1 + 2 * 10 + 2 * 100 + 1000


@pytest.mark.parametrize("name", ["B", "CB-4", "CC-3", "CCB-2-3"])
def test_tree_sums_children_in_the_trees_order(name):
    """Against a recursion over the tree."""
    topology, payload = topologies(13)[1], float_payload(13, 5)
    shape = trees.build(parse_pattern(name), topology)

    def total(rank: int) -> np.ndarray:
        value = payload[rank]
        for child in shape.children[rank]:
            value = value + total(child)
        return value

    assert simulate("reduce", name, Call(topology, 5, 2), payload, seed=1)[0].tobytes() == total(0).tobytes()


@every_name
def test_messages_are_no_longer_than_a_chunk(collective, name):
    for plan in planners.plans(collective, parse_pattern(name), Call(topologies(7)[1], 100, 8)):
        validate(plan)
        assert all(step.stop - step.start <= 8 for step in plan)


@every_name
def test_cost_is_as_stated(collective, name):
    stated = planner(collective, name)
    for n_ranks in range(2, 34):
        topology = Topology.from_ranks_per_node(n_ranks, 3)
        is_tree = parse_pattern(name).shape == "tree"
        claim = stated.cost(trees.build(parse_pattern(name), topology)) if is_tree else stated.cost(n_ranks)
        n_elems = 64 * n_ranks
        call = Call(topology, n_elems, n_elems // stated.cost_chunks)
        counted = measured_cost(planners.plans(collective, parse_pattern(name), call))
        assert counted.rounds == claim.rounds
        assert (counted.sent, counted.received) == pytest.approx((claim.sent, claim.received))


def test_counts_of_one_plan():
    ring = count(planners.plan("allreduce", parse_pattern("R"), 1, Call(Topology.flat(4), 8, 1)))
    assert (ring.messages_sent, ring.messages_received) == (12, 12)
    assert (ring.elems_sent, ring.elems_received, ring.elems_reduced) == (12, 12, 6)


@pytest.mark.parametrize(("collective", "name", "words"), [
    ("gather", "C", "reduce, bcast, allreduce, reduce_scatter, allgather"),
    ("bcast", "R", "'R' cannot do bcast: tree, twotree can"),
    ("reduce", "X", "'X'"),
    ("reduce", "P", "'P' cannot do reduce: halving, tree, twotree can"),
])
def test_what_cannot_be_planned_is_said(collective, name, words):
    with pytest.raises(CommError, match=words):
        planners.plan(collective, parse_pattern(name), 0, Call(Topology.flat(2), 4, 4))


@pytest.mark.parametrize(("changes", "words"), [
    ({"n_elems": -1}, "n_elems >= 0"), ({"chunk_elems": 0}, "chunk_elems >= 1"), ({"root": 3}, "below 3, not 3"),
    ({"counts": (1, 2)}, "3 numbers that sum to 4"), ({"counts": (5, -1, 0)}, "3 numbers"),
])
def test_calls_that_cannot_be_are_refused(changes, words):
    with pytest.raises(CommError, match=words):
        Call(**{"topology": Topology.flat(3), "n_elems": 4, "chunk_elems": 1} | changes)


def _reduced(collective, name, topology, payload, chunk_elems, seed=None) -> np.ndarray:
    """The reduction of payload (n_ranks, n_elems), put together from where it ends up."""
    call = Call(topology, payload.shape[1], chunk_elems)
    buffers = simulate(collective, name, call, payload, seed=seed)
    if collective == "reduce_scatter":
        return np.concatenate([buffers[rank][slice(*call.part(rank))] for rank in range(call.n_ranks)])
    return buffers[0]
