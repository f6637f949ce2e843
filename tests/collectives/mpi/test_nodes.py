"""Nodes that are given: unequal, interleaved, one rank each."""

import numpy as np
import pytest
import reference

from collectives import CommError, Communicator


@pytest.fixture(params=["ab", "aab", "abc"])
def given(request, communicator):
    """A communicator whose ranks take the letters in turn as their nodes."""
    labels = [request.param[rank % len(request.param)] for rank in range(communicator.n_ranks)]
    return Communicator(communicator._comm, 30, labels), labels


@pytest.mark.parametrize(("collective", "name"), [("reduce", "MC"), ("bcast", "MB"), ("allreduce", "MR"),
                                                    ("reduce", "CB-node"), ("allreduce", "auto")])
def test_collectives_on_given_nodes(communicator, given, collective, name):
    made, labels = given
    if communicator.topology.n_nodes > 1:
        pytest.skip("ranks that do not share memory")
    nodes = made.topology.node_of_rank
    assert all((nodes[one] == nodes[other]) == (labels[one] == labels[other])
               for one in range(made.n_ranks) for other in range(made.n_ranks))
    rows = reference.inputs(made.n_ranks, 5003, "float32", "sum")
    array = made.alloc(5003)
    array[:] = rows[made.rank]
    root = made.n_ranks - 1 if collective != "allreduce" else 0
    getattr(made, collective)(array, algorithm=name, **reference.arguments(collective, "sum", root))
    where, right = reference.expected(collective, made.rank, rows, "sum", root)
    assert np.array_equal(array[where], right)


def test_parts_need_a_nodes_ranks_to_be_consecutive(communicator):
    if communicator.n_ranks != 4:
        pytest.skip("needs four ranks")
    made = Communicator(communicator._comm, 30, "abab")
    with pytest.raises(CommError, match="where the ranks of a node are not consecutive"):
        made.allgather(np.zeros(8, np.float32), algorithm="MR")


def test_every_rank_needs_a_label(communicator):
    n_ranks = communicator.n_ranks
    with pytest.raises(CommError, match=f"label for each of {n_ranks} ranks, not {n_ranks + 1}"):
        Communicator(communicator._comm, 30, range(n_ranks + 1))
