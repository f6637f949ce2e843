"""What ranks do wrong is the same CommError on all of them, and the next collective works."""

import numpy as np
import pytest

from scaffe.collectives import CommError
from tests.collectives.everywhere import one_message


def fails_everywhere(communicator, call):
    """The one message that every rank's CommError carries."""
    return one_message(communicator, call, np.ones(3, np.float32))


@pytest.mark.parametrize("name", ["mpi", "C", "B"])
def test_lengths_differ(communicator, last, name):
    array = np.zeros(1234 if last else 1233, np.float32)
    message = fails_everywhere(communicator, lambda: communicator.reduce(array, algorithm=name))
    assert "1233" in message
    assert f"rank {communicator.n_ranks - 1} has" in message
    assert "1234" in message


@pytest.mark.parametrize("name", ["mpi", "C"])
def test_dtypes_differ(communicator, last, name):
    array = np.zeros(321, np.float64 if last else np.float32)
    message = fails_everywhere(communicator, lambda: communicator.allreduce(array, algorithm=name))
    assert "float32" in message
    assert "float64" in message


def test_roots_differ(communicator, last):
    array = np.zeros(322, np.float32)
    message = fails_everywhere(communicator, lambda: communicator.bcast(array, root=int(last), algorithm="B"))
    assert "root 1" in message


def test_root_is_no_rank(communicator):
    if communicator.n_ranks == 1:
        pytest.skip("one rank alone needs no root")
    array = np.zeros(5, np.float32)
    message = fails_everywhere(communicator, lambda: communicator.reduce(array, root=99, algorithm="C"))
    assert "not 99" in message


def test_places_differ_even_when_the_call_is_known(communicator, last):
    if communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    shared = communicator.alloc(777)
    communicator.reduce(shared, algorithm="M")
    private = np.zeros(777, np.float32)
    communicator.reduce(private, algorithm="M")
    array = private if last else shared
    message = fails_everywhere(communicator, lambda: communicator.reduce(array, algorithm="M"))
    assert "private memory" in message
    assert "window" in message


def test_offsets_differ(communicator, last):
    if communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    shared = communicator.alloc(100)
    array = shared[10:60] if last else shared[20:70]
    assert "byte 80" in fails_everywhere(communicator, lambda: communicator.reduce(array, algorithm="M"))


def test_alloc_of_different_lengths(communicator, last):
    if communicator.node_n_ranks < communicator.n_ranks:
        pytest.skip("ranks on several nodes")
    fails_everywhere(communicator, lambda: communicator.alloc(10 + last))


@pytest.mark.parametrize(("call", "text"), [
    (lambda c: c.reduce(np.zeros(4, np.float32), algorithm="Q"), "no algorithm is called 'Q'"),
    (lambda c: c.reduce(np.zeros(4, np.float32), algorithm="R"), "cannot do reduce"),
])
def test_no_such_algorithm(communicator, call, text):
    if communicator.n_ranks == 1:
        pytest.skip("one rank alone needs no algorithm")
    assert text in fails_everywhere(communicator, lambda: call(communicator))


@pytest.mark.parametrize(("call", "text"), [
    (lambda c: c.reduce(np.zeros(4, np.complex64)), "dtype must be one of"),
    (lambda c: c.reduce(np.zeros(4, np.float32), op="mean"), "op must be one of"),
    (lambda c: c.bcast(np.zeros((4, 4), np.float32)[:, 1]), "contiguous"),
    (lambda c: c.reduce(np.zeros(4, np.float32), out=np.zeros(5, np.float32)), "out must be 4 x float32"),
])
def test_arrays_that_cannot_be(communicator, call, text):
    with pytest.raises(CommError, match=text):
        call(communicator)


def test_agree(communicator, last):
    communicator.agree(("same", 3), "the net")
    message = fails_everywhere(communicator, lambda: communicator.agree(int(last), "the seed"))
    assert message == f"the seed differs: rank 0 has 0, rank {communicator.n_ranks - 1} has 1"
