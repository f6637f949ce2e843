"""Every algorithm of every collective: dtypes, ops, roots, lengths, places, blocking or not, twice in a row."""

from itertools import cycle, islice, pairwise, product

import numpy as np
import pytest
import reference

from scaffe.collectives import CommError
from scaffe.collectives.planning import planners
from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.planners import require

NAMES = ("auto", "mpi", "M", "MC", "MB", "MR", "SC", "SR", "SCB-2", "B", "C", "R", "H", "D", "P", "CB-2", "CC-2",
         "CCB-2-2", "CB-node")
CHUNK_BYTES = 512
LENGTHS = (0, 1, 13, CHUNK_BYTES // 8 + 1, 1009)
DTYPES = ("float32", "float64", "float16", "int32", "int64")
CASES = [(collective, name) for collective in reference.COLLECTIVES for name in NAMES
         if parse(name).pattern is None or parse(name).is_shared or planners.can(collective, parse(name).pattern)]


def run_twice(communicator, collective, how, rows, make, form):
    """Two calls in a row on fresh values; the buffer after each."""
    array = make(rows.shape[1], rows.dtype)
    for _ in range(2):
        array[:] = rows[communicator.rank]
        request = getattr(communicator, form + collective)(array, **how)
        if request is not None:
            request.wait(120)
            assert request.test()
        yield array


@pytest.mark.parametrize(("collective", "name"), CASES)
def test_gives_what_numpy_gives(communicator, collective, name):
    if name != "auto":
        try:
            require(collective, parse(name), communicator.topology)
        except CommError:
            pytest.skip("cannot do this on these nodes")
    n_ranks, rank = communicator.n_ranks, communicator.rank
    has_root = collective in ("reduce", "bcast")
    kinds = islice(cycle(product(DTYPES, reference.OPS)), n_ranks, None)  # a length meets others on other ranks
    places = cycle([communicator.alloc, np.empty])
    roots = cycle([0, n_ranks // 2, n_ranks - 1] if has_root else [0])
    n_rounds = 2 if n_ranks < 4 or has_root else 1  # four calls of each length meet all three roots
    for n_elems, form, _ in product(LENGTHS, ("", "i"), range(n_rounds)):
        (dtype, op), make, root = next(kinds), next(places), next(roots)
        rows = reference.inputs(n_ranks, n_elems, dtype, op)
        where, right = reference.expected(collective, rank, rows, op, root)
        how = reference.arguments(collective, op, root) | {"algorithm": name, "chunk_bytes": CHUNK_BYTES}
        for array in run_twice(communicator, collective, how, rows, make, form):
            assert np.array_equal(array[where], right), (n_elems, dtype, op, root, form, make)


@pytest.mark.parametrize("name", ["mpi", "M", "C", "auto"])
@pytest.mark.parametrize("collective", ["reduce", "allreduce"])
def test_out_leaves_the_input_as_it_was(communicator, collective, name):
    if name == "M" and communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    rows = reference.inputs(communicator.n_ranks, 1009, "float32", "sum")
    given, out = rows[communicator.rank].copy(), np.zeros(1009, np.float32)
    getattr(communicator, collective)(given, algorithm=name, out=out)
    where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
    assert np.array_equal(out[where], right)
    assert np.array_equal(given, rows[communicator.rank])


@pytest.mark.parametrize("collective", reference.COLLECTIVES)
def test_long_private_buffers_go_through_the_staging_memory_in_pieces(communicator, collective):
    if communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    rows = reference.inputs(communicator.n_ranks, 300_007, "float32", "sum")
    array = rows[communicator.rank].copy()
    getattr(communicator, collective)(array, algorithm="M")
    where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
    assert np.array_equal(array[where], right)


@pytest.mark.parametrize("collective", ["reduce", "reduce_scatter"])
def test_the_next_rank_gets_each_result_too(communicator, collective):
    if communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    n_ranks, rank = communicator.n_ranks, communicator.rank
    for n_elems, make, form, root in product((1, 13, 300_007), (communicator.alloc, np.empty), ("", "i"),
                                             {0, n_ranks - 1} if collective == "reduce" else [0]):
        rows = reference.inputs(n_ranks, n_elems, "float32", "sum")
        how = reference.arguments(collective, "sum", root) | {"algorithm": "M2"}
        for array in run_twice(communicator, collective, how, rows, make, form):
            for owner in (rank, (rank - 1) % n_ranks):
                where, right = reference.expected(collective, owner, rows, "sum", root)
                assert np.array_equal(array[where], right), (n_elems, form, root, make, owner)


@pytest.mark.parametrize("name", ["auto", "M", "MC", "SC", "C", "B", "CB-2", "CC-2", "D"])
def test_layer_by_layer_gives_the_bits_of_the_whole(communicator, name):
    if name == "M" and communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    cuts, n_elems = [0, 1, 70, 71, 2000, 7001], 7001
    values = np.random.default_rng(communicator.rank).standard_normal(n_elems).astype(np.float32)
    whole, layers, helped = (communicator.alloc(n_elems) for _ in range(3))
    for array in (whole, layers, helped):
        array[:] = values
    collective = "allreduce" if name == "D" else "reduce"
    name = "C" if name == "auto" and communicator.n_ranks == 1 else name
    run, submit = getattr(communicator, collective), getattr(communicator, f"i{collective}")
    how = {"algorithm": "M" if name == "auto" and communicator.topology.n_nodes == 1 else name.replace("auto", "MC")}
    run(whole, **how)
    pieces = list(pairwise(cuts))
    for start, stop in reversed(pieces):
        run(layers[start:stop], chunk_bytes=400, **how)
    requests = [submit(helped[start:stop], chunk_bytes=1200, **how) for start, stop in pieces]
    for request in requests:
        request.wait(120)
    if collective == "allreduce" or communicator.rank == 0:
        assert np.array_equal(whole.view(np.int32), layers.view(np.int32))
        assert np.array_equal(whole.view(np.int32), helped.view(np.int32))


@pytest.mark.parametrize("name", ["MR", "MH", "MD", "MP", "SR", "SH", "SD", "SP"])
@pytest.mark.parametrize("collective", ["reduce_scatter", "allgather"])
def test_parts_go_through_shared_memory_and_across_nodes(communicator, collective, name):
    """Long buffers in windows and in private memory, twice."""
    if not planners.can(collective, parse(name).pattern) or communicator.topology.n_nodes == 1:
        pytest.skip("cannot do this")
    rows = reference.inputs(communicator.n_ranks, 70_001, "float32", "sum")
    where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
    how = {"algorithm": name, "chunk_bytes": 14_000}
    for make in (communicator.alloc, np.empty):
        for array in run_twice(communicator, collective, how, rows, make, ""):
            assert np.array_equal(array[where], right)
