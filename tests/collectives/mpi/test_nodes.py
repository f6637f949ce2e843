"""Nodes that are given: unequal, interleaved, one rank each."""

import numpy as np
import pytest
import reference

from scaffe.collectives import CommError, Communicator


@pytest.fixture(params=["ab", "aab", "abc"])
def given(request, communicator):
    """A communicator whose ranks take the letters in turn as their nodes."""
    labels = [request.param[rank % len(request.param)] for rank in range(communicator.n_ranks)]
    return Communicator(communicator._comm, 120, labels), labels


@pytest.mark.parametrize(("collective", "name"), [("reduce", "MC"), ("bcast", "MB"), ("allreduce", "MR"),
                                                    ("reduce", "SC"), ("bcast", "SB"), ("allreduce", "SR"),
                                                    ("reduce_scatter", "SH"), ("allgather", "SR"),
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
    root = made.n_ranks - 1 if collective in ("reduce", "bcast") else 0
    getattr(made, collective)(array, algorithm=name, **reference.arguments(collective, "sum", root))
    where, right = reference.expected(collective, made.rank, rows, "sum", root)
    assert np.array_equal(array[where], right)


def test_parts_need_a_nodes_ranks_to_be_consecutive(communicator):
    if communicator.n_ranks != 4:
        pytest.skip("needs four ranks")
    made = Communicator(communicator._comm, 120, "abab")
    with pytest.raises(CommError, match="where the ranks of a node are not consecutive"):
        made.allgather(np.zeros(8, np.float32), algorithm="MR")


def test_every_rank_needs_a_label(communicator):
    n_ranks = communicator.n_ranks
    with pytest.raises(CommError, match=f"label for each of {n_ranks} ranks, not {n_ranks + 1}"):
        Communicator(communicator._comm, 120, range(n_ranks + 1))


@pytest.mark.parametrize(("dtype", "op"), [("float32", "sum"), ("float16", "max"), ("int64", "prod")])
def test_one_result_for_all_ranks_of_a_node(communicator, given, dtype, op):
    made, _ = given
    for on in (communicator, made):
        if on.topology.n_nodes > 1 and communicator.topology.n_nodes > 1:
            continue
        rows = reference.inputs(on.n_ranks, 5003, dtype, op)
        array = on.alloc(5100, dtype)[50:5053]
        _, right = reference.expected("allreduce", on.rank, rows, op, 0)
        for _ in range(2):
            array[:] = rows[on.rank]
            result = on.allreduce_shared(array, op)
            assert np.array_equal(result, right)
            assert not result.flags.writeable
            on.barrier()
        if on.node_n_ranks == on.n_ranks:
            array[:] = on.rank + 1
            on.barrier()
            assert (result == 1).all()
            on.barrier()


def test_a_shared_result_needs_shared_memory(communicator):
    if communicator.n_ranks == 1:
        assert communicator.allreduce_shared(np.ones(3)).sum() == 3
        return
    with pytest.raises(CommError, match="an array in host memory from alloc"):
        communicator.allreduce_shared(np.ones(3))
    assert communicator.allreduce_shared(communicator.alloc(0)).size == 0
    shared = communicator.alloc(3)
    with pytest.raises(CommError, match="starts with M or S, not 'C'"):
        communicator.allreduce_shared(shared, algorithm="C")
