"""Every transport of device buffers against numpy: dtypes, ops, roots, lengths, blocking or not, twice in a row."""

import os
from itertools import cycle, pairwise, product

import numpy as np
import pytest
import reference
from conftest import IS_REAL

from scaffe.collectives import CommError
from scaffe.collectives.planning import planners
from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.planners import require

CHUNK_BYTES = 512
LENGTHS = (0, 1, 13, CHUNK_BYTES // 8 + 1, 1009)
DTYPES = ("float32", "float64", "float16", "int32", "int64")
BY_MESSAGES = ("auto", "mpi", "B", "C", "R", "H", "D", "P", "CB-2")
ANY = ("auto", "mpi", "nccl")
CASES = [(kind, collective, name) for collective in reference.COLLECTIVES
         for kind, names in (("ipc", ("auto", "M", "MC", "CB-node", "SC", "SR")), ("cards", ("M", "SC", "SR")),
                             ("flags", ("M",)), ("nccl", ("nccl",)), ("staged", BY_MESSAGES), ("aware", BY_MESSAGES))
         for name in names if name in ANY or name.startswith("M") or planners.can(collective, parse(name).pattern)]


def possible(communicator, collective, name, form=""):
    """Skip what these nodes cannot do."""
    try:
        if name not in ANY:
            require(collective, parse(name), communicator.topology)
    except CommError:
        pytest.skip("cannot do this on these nodes")


def call(communicator, cp, collective, array, values, form, streams, **how):
    """One call on `values`, written on one stream and read on another: nothing between but what a call promises."""
    writer, reader = streams
    with writer:
        array[...] = cp.asarray(values)
        if not form:
            getattr(communicator, collective)(array, **how)
            return array.copy().get(writer)
        done = writer.record()
    request = getattr(communicator, f"i{collective}")(array, after=done, **how)
    request.wait(60, reader)
    assert request.test()
    with reader:
        return array.copy().get(reader)


@pytest.mark.parametrize(("communicator", "collective", "name"), CASES, indirect=["communicator"])
def test_gives_what_numpy_gives(communicator, cp, collective, name):
    possible(communicator, collective, name)
    rank, n_ranks = communicator.rank, communicator.n_ranks
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    kinds, forms = cycle(product(DTYPES, reference.OPS)), cycle(("", "i"))
    takes_root = collective in ("reduce", "bcast")
    for n_elems in LENGTHS if n_ranks < 4 else LENGTHS[2:]:
        roots = range(n_ranks) if takes_root and n_elems == 13 else [n_ranks // 2 if takes_root else 0]
        for root in roots:
            dtype, op = next(kinds)
            form = next(forms) if name != "mpi" else ""
            rows = reference.inputs(n_ranks, n_elems, dtype, op)
            where, right = reference.expected(collective, rank, rows, op, root)
            how = reference.arguments(collective, op, root) | {"algorithm": name, "chunk_bytes": CHUNK_BYTES}
            array = communicator.alloc(n_elems, dtype, "device") if n_elems % 2 else cp.empty(n_elems, dtype)
            for _ in range(2):
                got = call(communicator, cp, collective, array, rows[rank], form, streams, **how)
                assert np.array_equal(got[where], right), (n_elems, dtype, op, root, form)


@pytest.mark.parametrize(("communicator", "name"), [("ipc", "M"), ("staged", "C"), ("aware", "R")],
                         indirect=["communicator"])
def test_bfloat16(communicator, cp, name):
    possible(communicator, "allreduce", name)
    brain = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    rows = reference.inputs(communicator.n_ranks, 333, "int32", "sum") % (200 // communicator.n_ranks)
    array = cp.asarray(rows[communicator.rank].astype(brain))
    communicator.allreduce(array, algorithm=name, chunk_bytes=128)
    assert np.array_equal(array.get().astype(np.float32), rows.sum(0))
    with pytest.raises(CommError, match="MPI has no bfloat16"):
        communicator.allreduce(array, algorithm="mpi")


@pytest.mark.parametrize(("communicator", "name"), [("ipc", "M"), ("staged", "C"), ("aware", "C"), ("staged", "mpi"),
                                                    ("aware", "mpi"), ("nccl", "nccl")], indirect=["communicator"])
@pytest.mark.parametrize("collective", ["reduce", "allreduce", "reduce_scatter"])
def test_out_leaves_the_input_as_it_was(communicator, cp, collective, name):
    name = "R" if name == "C" and collective == "reduce_scatter" else name
    possible(communicator, collective, name)
    rows = reference.inputs(communicator.n_ranks, 1009, "float32", "sum")
    given, out = cp.asarray(rows[communicator.rank]), cp.zeros(1009, np.float32)
    getattr(communicator, collective)(given, algorithm=name, out=out)
    where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
    assert np.array_equal(out.get()[where], right)
    assert np.array_equal(given.get(), rows[communicator.rank])


@pytest.mark.parametrize("collective", reference.COLLECTIVES)
def test_private_buffers_go_through_the_staging_window_in_pieces(communicator, cp, collective, monkeypatch):
    possible(communicator, collective, "M")
    node = communicator._ranks.engine.backends["device"].node
    monkeypatch.setattr(node, "_stage", node._stage[:4096])
    rows = reference.inputs(communicator.n_ranks, 5003, "float32", "sum")
    array = cp.asarray(rows[communicator.rank])
    getattr(communicator, collective)(array, algorithm="M")
    where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
    assert np.array_equal(array.get()[where], right)


@pytest.mark.parametrize(("communicator", "name"), [("ipc", "M"), ("staged", "C"), ("aware", "CB-2")],
                         indirect=["communicator"])
def test_layer_by_layer_gives_the_bits_of_the_whole(communicator, cp, name):
    possible(communicator, "reduce", name)
    cuts, n_elems = [0, 1, 70, 71, 2000, 7001], 7001
    values = np.random.default_rng(communicator.rank).standard_normal(n_elems).astype(np.float32)
    whole, layers = (communicator.alloc(n_elems, memory="device") for _ in range(2))
    whole[...] = layers[...] = cp.asarray(values)
    communicator.reduce(whole, algorithm=name)
    requests = [communicator.ireduce(layers[start:stop], algorithm=name, chunk_bytes=1200)
                for start, stop in pairwise(cuts)]
    for request in requests:
        request.wait(120)
    if communicator.rank == 0:
        assert np.array_equal(whole.get().view(np.int32), layers.get().view(np.int32))


@pytest.mark.parametrize("communicator", ["staged", "aware"], indirect=True)
@pytest.mark.parametrize("wire", ["fp16", "bf16"])
def test_a_chain_with_a_wire_gives_the_bits_of_the_hosts(communicator, cp, wire):
    rows = np.random.default_rng(7).standard_normal((communicator.n_ranks, 1009)).astype(np.float32)
    on_host, on_device = rows[communicator.rank].copy(), cp.asarray(rows[communicator.rank])
    for collective, name in (("reduce", "C"), ("reduce_scatter", "R")):
        how = {"algorithm": f"{name}:{wire}", "chunk_bytes": 256}
        getattr(communicator, collective)(on_host, **how)
        getattr(communicator, collective)(on_device, **how)
        where, _ = reference.expected(collective, communicator.rank, rows, "sum", 0)
        assert np.array_equal(on_host[where].view(np.int32), on_device.get()[where].view(np.int32))


@pytest.mark.parametrize("communicator", ["nccl"], indirect=True)
@pytest.mark.parametrize("collective", reference.COLLECTIVES)
def test_nccl_on_parts_of_equal_length(communicator, cp, collective):
    rows = reference.inputs(communicator.n_ranks, 60, "float32", "sum")
    where, right = reference.expected(collective, communicator.rank, rows, "sum", 0)
    for form in ("", "i"):
        array = cp.asarray(rows[communicator.rank])
        request = getattr(communicator, f"{form}{collective}")(array, algorithm="nccl")
        if form:
            request.wait(60)
        assert np.array_equal(array.get()[where], right)


@pytest.mark.parametrize("communicator", ["nccl"], indirect=True)
def test_nccl_has_one_queue_in_the_callers_order(communicator, cp):
    """A helper's communicator, or its thread, could be another rank's first and this one's second."""
    if IS_REAL:
        pytest.skip("asks the pretend NCCL")
    from tests.pretend import nccl

    arrays = [cp.full(10, communicator.rank + number, np.float32) for number in range(3)]
    requests = [communicator.iallreduce(arrays[0], algorithm="nccl")]
    communicator.allreduce(arrays[1], algorithm="nccl")
    requests.append(communicator.iallreduce(arrays[2], algorithm="nccl"))
    for request in requests:
        request.wait(60)
    for number, array in enumerate(arrays):
        assert (array.get() == sum(rank + number for rank in range(communicator.n_ranks))).all()
    assert nccl.made == ["collectives-nccl-start"]
    assert nccl.queued_by == {"MainThread"}
    assert os.environ["NCCL_LAUNCH_ORDER_IMPLICIT"] == "1"


class Foreign:
    """An array of another library."""

    def __init__(self, array):
        self._array = array

    @property
    def __cuda_array_interface__(self):
        return self._array.__cuda_array_interface__


def test_arrays_of_other_libraries(communicator, cp):
    array = cp.zeros(100, np.float32)
    array += communicator.rank + 1
    communicator.allreduce(Foreign(array))
    assert (array.get() == sum(range(communicator.n_ranks + 1))).all()
