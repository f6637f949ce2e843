"""Sums whose messages are half precision: a chain's bits worked out by hand, rounding elsewhere, whole and in parts."""

from itertools import pairwise

import numpy as np
import pytest
import reference

from scaffe.collectives import CommError
from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.planners import require
from tests.collectives.halves import ROUND

N_ELEMS = 1009


def values(communicator, n_elems=N_ELEMS):
    return np.random.default_rng(7).standard_normal((communicator.n_ranks, n_elems)).astype(np.float32)


@pytest.mark.parametrize("wire", ["fp16", "bf16"])
@pytest.mark.parametrize("form", ["", "i"])
def test_a_chain_rounds_at_every_hop_and_adds_in_float32(communicator, wire, form):
    rows = values(communicator)
    array, right = rows[communicator.rank].copy(), rows[-1]
    for row in rows[-2::-1]:  # with consecutive ranks on a node the chain ends rank 2, rank 1, rank 0
        right = row + ROUND[wire](right)
    request = getattr(communicator, f"{form}reduce")(array, algorithm=f"C:{wire}", chunk_bytes=128)
    if request is not None:
        request.wait(120)
    if communicator.rank == 0:
        assert np.array_equal(array.view(np.int32), right.view(np.int32))


@pytest.mark.parametrize("name", ["auto", "M", "MC", "B", "H", "P", "R", "CB-2", "T"])
@pytest.mark.parametrize("collective", ["reduce", "reduce_scatter"])
def test_sums_are_right_to_the_wires_rounding(communicator, collective, name):
    try:
        if name != "auto":
            require(collective, parse(name), communicator.topology)
    except CommError:
        pytest.skip("cannot do this on these nodes")
    for wire, step in (("fp16", 2.0**-11), ("bf16", 2.0**-8)):
        rows = values(communicator)
        where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
        array = communicator.alloc(N_ELEMS)
        array[:] = rows[communicator.rank]
        getattr(communicator, collective)(array, algorithm=f"{name}:{wire}", chunk_bytes=256)
        largest = np.abs(rows).sum(axis=0)[where]
        assert (np.abs(array[where] - right) <= communicator.n_ranks * step * largest).all()


@pytest.mark.parametrize("name", ["C", "B", "CB-2"])
def test_layer_by_layer_gives_the_bits_of_the_whole(communicator, name):
    whole = values(communicator)[communicator.rank].copy()
    layers = whole.copy()
    communicator.reduce(whole, algorithm=f"{name}:bf16")
    cuts = [0, 1, 70, 71, N_ELEMS]
    requests = [communicator.ireduce(layers[start:stop], algorithm=f"{name}:bf16", chunk_bytes=64)
                for start, stop in pairwise(cuts)]
    for request in requests:
        request.wait(120)
    if communicator.rank == 0:
        assert np.array_equal(whole.view(np.int32), layers.view(np.int32))


@pytest.mark.parametrize(("collective", "algorithm", "dtype", "message"), [
    ("bcast", "C:bf16", "float32", "bcast has no wire"), ("allreduce", "auto:fp16", "float32", "allreduce has no wire"),
    ("reduce", "mpi:bf16", "float32", "got float32 and mpi"), ("reduce", "C:fp16", "float64", "got float64 and C"),
    ("reduce", "C:fp8", "float32", "a wire is fp16 or bf16, not 'fp8'")])
def test_mistakes_are_one_error_on_all_ranks(communicator, collective, algorithm, dtype, message):
    if communicator.n_ranks == 1:
        pytest.skip("one rank sends nothing")
    with pytest.raises(CommError, match=message):
        getattr(communicator, collective)(np.zeros(10, dtype), algorithm=algorithm)
