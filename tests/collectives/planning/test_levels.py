"""M and S across nodes: all ranks' phases in one process, on 1 to 33 ranks and nodes of any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.collectives.planning import planners
from scaffe.collectives.planning.algorithm import COLLECTIVES, parse
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.levels import (
    InterNodePhase,
    IntraNodePhase,
    Levels,
    in_node_memory,
    relocated,
    shares,
)
from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send
from scaffe.collectives.planning.planners import spans_nodes
from scaffe.collectives.topology import Topology
from tests.collectives.cases import (
    N_ELEMS,
    defined_at_start,
    expected,
    float_payload,
    rank_counts,
    topologies,
    unique_payload,
)
from tests.collectives.model.simulator import LevelSimulation, SimulationError, measured_cost

NAMES = [(collective, letter + name) for collective in COLLECTIVES for letter in "MS"
         for name in [*planners.short_names(collective), *(["CB-2"] if collective in ("reduce", "bcast") else [])]]
every_name = pytest.mark.parametrize(("collective", "name"), NAMES)


def nodes_of(n_ranks):
    """Equal nodes but for the last, nodes of 2 to 5 ranks, and interleaved ones of unequal size."""
    sizes = [node for node in range(n_ranks) for _ in range(2 + 7 * node % 4)][:n_ranks]
    return [*topologies(n_ranks)[1:], Topology.from_ranks_per_node(n_ranks, 4), Topology(sizes)]


def run(collective, name, call, payload, seed=0):
    algorithm = parse(name)
    buffers = [row.copy() for row in payload]
    LevelSimulation(Levels(collective, call.topology, call.n_elems, call.root), algorithm.pattern, algorithm.is_split,
                    call.chunk_elems, buffers, defined_at_start(collective, call)).run(seed)
    return buffers


def check(collective, name, call, seed=0):
    payload = unique_payload(call.n_ranks, call.n_elems)
    buffers = run(collective, name, call, payload, seed)
    for rank, where, values in expected(collective, payload, call):
        np.testing.assert_array_equal(buffers[rank][where], values, f"{collective} by {name}, rank {rank}, {call}")


def possible(collective, name, topology):
    return topology.n_nodes > 1 and (parse(name).is_split or spans_nodes(collective, topology))


@rank_counts
@every_name
def test_right_on_any_rank_count_and_nodes(collective, name, rank_counts):
    for n_ranks in rank_counts:
        for seed, topology in enumerate(nodes_of(n_ranks)):
            if possible(collective, name, topology):
                root = 7 * n_ranks // 3 % n_ranks if collective in ("reduce", "bcast") else 0
                check(collective, name, Call(topology, (37, 2 * n_ranks + 1, 211)[seed % 3], 5, root), seed)


@every_name
def test_right_on_any_length_and_chunk(collective, name):
    for n_ranks in (2, 3, 5, 8):
        for topology in nodes_of(n_ranks):
            for n_elems in (*N_ELEMS, 1009):
                if possible(collective, name, topology):
                    check(collective, name, Call(topology, n_elems, 36), seed=n_elems)


@pytest.mark.parametrize(("collective", "name"), [pair for pair in NAMES if pair[0] in ("reduce", "bcast")])
def test_right_at_every_root(collective, name):
    for n_ranks in (4, 7, 13):
        for root in range(n_ranks):
            topology = nodes_of(n_ranks)[root % 4]
            if possible(collective, name, topology):
                check(collective, name, Call(topology, 200, 33, root), seed=root)


@pytest.mark.parametrize("name", ["MC", "SC", "MR", "SR"])
def test_one_result_per_node(name):
    for topology in nodes_of(11):
        payload = unique_payload(11, 300)
        buffers = [row.copy() for row in payload]
        levels = Levels("allreduce", topology, 300, leaves_one_per_node=True)
        LevelSimulation(levels, parse(name).pattern, name[0] == "S", 50, buffers,
                        [np.ones(300, bool) for _ in buffers]).run()
        for leader in topology.leaders:
            np.testing.assert_array_equal(buffers[leader], payload.sum(axis=0))


@pytest.mark.parametrize("collective", ["reduce", "allreduce"])
@pytest.mark.parametrize("pattern", ["C", "B", "CB-2"])
def test_a_split_sum_has_the_bits_of_the_leaders(collective, pattern):
    """So do layer by layer and any chunk: each element's operands meet in the order of ranks, then of nodes."""
    for topology in nodes_of(13):
        payload = float_payload(13, 600)
        by_leaders, split = (run(collective, letter + pattern, Call(topology, 600, 41, 0), payload)[0]
                             for letter in "MS")
        assert by_leaders.tobytes() == split.tobytes()
        layers = [run(collective, f"S{pattern}", Call(topology, stop - start, 1000, 0), payload[:, start:stop])[0]
                  for start, stop in ((0, 1), (1, 270), (270, 600))]
        assert np.concatenate(layers).tobytes() == split.tobytes()


def test_by_hand():
    """Two nodes of two ranks: each rank owns half, and meets the rank of its number."""
    phases = Levels("allreduce", Topology([0, 0, 1, 1]), 256).phases(3, is_split=True)
    halves = ((0, 128, 0), (128, 256, 1))
    assert [phase for phase in phases if isinstance(phase, IntraNodePhase)] == [
        IntraNodePhase("reduce_scatter", 0, 256, parts=halves), IntraNodePhase("allgather", 0, 256, parts=halves)]
    (across,) = [phase for phase in phases if isinstance(phase, InterNodePhase)]
    assert (across.group.ranks, across.group.intervals) == ((1, 3), ((128, 256),))


def test_every_rank_of_a_node_goes_across_with_its_share_alone():
    topology = Topology.from_ranks_per_node(32, 8)
    for collective, pattern in (("reduce", "C"), ("allreduce", "R"), ("bcast", "C"), ("reduce_scatter", "R")):
        for rank in range(32):
            groups = [phase.group for phase in Levels(collective, topology, 32_768).phases(rank, is_split=True)
                      if isinstance(phase, InterNodePhase)]
            assert [group.ranks for group in groups] == [tuple(range(rank % 8, 32, 8))]
            assert sum(stop - start for start, stop in groups[0].intervals) == 32_768 // 8
            plans = [groups[0].plan(collective, parse(f"S{pattern}").pattern, place, 32_768, 32_768)
                     for place in range(4)]
            assert measured_cost(plans).sent <= 2 / 8


def test_the_smallest_node_says_how_many_shares_there_are():
    topology = Topology([0] * 5 + [1] * 3 + [2] * 4)
    levels = Levels("allreduce", topology, 1000)
    members = {tuple(phase.group.ranks) for rank in range(12) for phase in levels.phases(rank, is_split=True)
               if isinstance(phase, InterNodePhase)}
    assert members == {(0, 5, 8), (1, 6, 9), (2, 7, 10)}


@pytest.mark.parametrize(("n_elems", "n_shares", "right"), [
    (0, 3, ()), (2, 3, ((0, 1, 1), (1, 2, 2))), (192, 3, ((0, 64, 0), (64, 128, 1), (128, 192, 2))),
    (1000, 2, ((0, 512, 0), (512, 1000, 1)))])
def test_shares_begin_at_whole_packs(n_elems, n_shares, right):
    assert shares(n_elems, n_shares) == right


def test_a_plan_is_cut_where_its_pieces_lie_apart():
    plan = Plan(0, 2, 9, (Send(1, 0, 4), Recv(1, 3, 8), RecvReduce(1, 8, 9)))
    moved = relocated(plan, ((10, 13), (30, 30), (20, 25), (2, 3)), 40)
    assert moved == Plan(0, 2, 40, (Send(1, 10, 13), Send(1, 20, 21), Recv(1, 20, 25), RecvReduce(1, 2, 3)))


def test_phases_that_do_not_meet_are_seen():
    made = LevelSimulation(Levels("allreduce", Topology([0, 0, 1, 1]), 8), parse("SC").pattern, True, 8,
                           [np.zeros(8) for _ in range(4)], [np.zeros(8, bool) for _ in range(4)])
    with pytest.raises(SimulationError, match="hold no value"):
        made.run()


EIGHTS, FOURS_AND_ONE = Topology.from_ranks_per_node(32, 8), Topology([0] * 4 + [1])


@pytest.mark.parametrize(("name", "topology", "runs_as"), [
    ("CB-node", EIGHTS, "MB"), ("CC-node", EIGHTS, "MC"), ("CB-8", EIGHTS, "MB"), ("CC-8", EIGHTS, "MC"),
    ("CCB-8-2", EIGHTS, "MCB-2"), ("BCB-node-2:bf16", EIGHTS, "MCB-2:bf16"), ("CB-node", FOURS_AND_ONE, "MB"),
    ("CB-node", Topology([0] * 5), "M"), ("CB-4", Topology([0] * 4), "M"), ("CB-8", Topology([0, 1] * 8), "MB"),
    # levels that are not the ranks of each node
    ("CB-4", EIGHTS, "CB-4"), ("CB-16", EIGHTS, "CB-16"), ("CB-4", FOURS_AND_ONE, "CB-4"),
    ("CB-4", Topology([0] * 5), "CB-4"),
    ("CCB-4-2", EIGHTS, "CCB-4-2"), ("C", EIGHTS, "C"), ("R", EIGHTS, "R"), ("MB", EIGHTS, "MB"), ("SR", EIGHTS, "SR"),
    ("mpi", EIGHTS, "mpi"), ("nccl", EIGHTS, "nccl")])
def test_a_lowest_level_of_whole_nodes_is_in_their_memory(name, topology, runs_as):
    found = in_node_memory(parse(name), topology)
    assert str(found) == runs_as
    assert found == parse(runs_as)


@pytest.mark.parametrize("root", [0, 5, 31])
def test_the_groups_of_such_a_level_are_the_nodes(root):
    """What makes the two alike: the composition cuts the ranks where the nodes end."""
    assert {frozenset(group) for group in EIGHTS.groups(8, root)} == {frozenset(ranks) for ranks in EIGHTS.nodes}
