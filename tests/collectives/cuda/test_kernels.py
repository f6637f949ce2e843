"""The kernels of collectives: compiled for real cards with NVRTC, and run on odd addresses and lengths."""

import re

import numpy as np
import pytest

from scaffe.collectives.cuda.kernels import (
    BLOCKS_PER_MULTIPROCESSOR,
    DEFINITIONS,
    MOST_RANKS,
    SOURCE,
    THREADS_PER_BLOCK,
    GatherRanks,
    Kernels,
    grid,
    kernels,
)
from scaffe.collectives.cuda.streams import Span
from scaffe.errors import UserError
from tests import pretend
from tests.layers.cuda import nvrtc

MACHINE_CODE = [("sm_80", "float16")]  # others in layers/cuda/test_occupancy.py; the rest only as far as PTX: faster
CASES = MACHINE_CODE + [("compute_70", kind) for kind in DEFINITIONS]
OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


@pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC (pip install 'scaffe[gpu-check]')")
@pytest.mark.parametrize(("architecture", "kind"), CASES)
def test_compiles(architecture, kind):
    if int(architecture.split("_")[1]) not in nvrtc.architectures():
        pytest.skip(f"this NVRTC does not know {architecture}")
    assert not nvrtc.errors(SOURCE.read_text(), ("-std=c++17", *DEFINITIONS[kind], f"-arch={architecture}"))


def test_the_source_and_its_launches_have_the_same_constants():
    defined = dict(re.findall(r"^#define (\w+) (\d+)", SOURCE.read_text(), re.MULTILINE))
    assert defined["MOST_RANKS"] == str(MOST_RANKS)
    assert defined["THREADS"] == str(THREADS_PER_BLOCK)
    assert defined["BLOCKS"] == str(BLOCKS_PER_MULTIPROCESSOR)


@pytest.fixture
def cp(monkeypatch):
    kernels.cache_clear()
    yield pretend.install(monkeypatch)
    kernels.cache_clear()


def span(array):
    return Span(array.data.ptr, array.size, array.dtype)


@pretend.needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
@pytest.mark.parametrize(("own_skip", "other_skip"), [(0, 0), (1, 1), (3, 0), (0, 2), (5, 1)])
def test_combines_at_any_alignment(cp, dtype, own_skip, other_skip):
    rng = np.random.default_rng(3)
    for op, n_elems in zip(OPS, (1, 7, 130, 1009), strict=True):
        own, other = ((rng.integers(1, 40, n_elems + 8)).astype(dtype) for _ in range(2))
        on_device, received = cp.asarray(own), cp.asarray(other)
        kernels().elementwise(f"combine_{dtype}_{op}", span(on_device[own_skip:][:n_elems]),
                              span(received[other_skip:][:n_elems]))()
        right = own.copy()
        right[own_skip:][:n_elems] = OPS[op](own[own_skip:][:n_elems], other[other_skip:][:n_elems])
        assert np.array_equal(on_device.get(), right)


@pretend.needs_compiler
@pytest.mark.parametrize("skip", [0, 1, 6])
def test_gathers_from_and_to_the_ranks_that_are_asked_for(cp, skip):
    n_ranks, n_elems = 5, 301
    rows = np.random.default_rng(5).integers(0, 1000, (n_ranks, n_elems)).astype(np.float32)
    everyone = list(range(n_ranks))
    for ranks, sources, targets in (((0, 5, 0, 5, -1), everyone, everyone), ((0, 5, 3, 1, -1), everyone, [3]),
                                    ((2, 1, 0, 5, 2), [2], [0, 1, 3, 4]), ((1, 2, 4, 1, -1), [1, 2], [4])):
        windows = [cp.asarray(row) for row in rows]
        bases = [window.data.ptr for window in windows]
        n = n_elems - skip - 2
        kernels().gathering(bases, skip * 4, n, np.dtype(np.float32), "sum", ranks)()
        right = rows.copy()
        right[targets, skip : skip + n] = rows[sources, skip : skip + n].sum(0)
        assert np.array_equal(np.array([window.get() for window in windows]), right)


@pretend.needs_compiler
@pytest.mark.parametrize(("n_ranks", "ranks"), [(2, (1, 1, 0, 1, -1)), (9, (0, 9, 8, 1, -1))])
def test_gathers_more_packs_than_threads_and_more_ranks_than_loads(cp, n_ranks, ranks):
    n_elems = 30_003  # each thread copies five packs, the last one only some of it
    rows = np.random.default_rng(6).integers(0, 1000, (n_ranks, n_elems)).astype(np.float32)
    windows = [cp.asarray(row) for row in rows]
    kernels().gathering([window.data.ptr for window in windows], 0, n_elems, rows.dtype, "sum", ranks)()
    first, n_sources, target, *_ = ranks
    assert np.array_equal(windows[target].get(), rows[first : first + n_sources].sum(0))


@pretend.needs_compiler
def test_halves_are_summed_in_float_and_rounded_once(cp):
    rows = np.array([[2048.0, 1.0, 1.0, 0.5]] * 2, np.float16).T.reshape(4, 2).copy()
    windows = [cp.asarray(row) for row in rows]
    bases = [window.data.ptr for window in windows]
    kernels().gathering(bases, 0, 2, np.dtype(np.float16), "sum", (0, 4, 0, 1, -1))()
    assert windows[0].get().tolist() == [2050.0, 2050.0]  # one by one in float16: 2048 + 1 is 2048 again


@pretend.needs_compiler
@pytest.mark.parametrize(("wire", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_packing_rounds_as_the_type_does(cp, wire, dtype):
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), dtype, np.float16))
    values = np.random.default_rng(9).standard_normal(1003).astype(np.float32) * np.float32(70)
    numbers, words = cp.asarray(values), cp.empty(1003, np.uint16)
    kernels().elementwise(f"pack_{wire}", span(words), span(numbers))()
    right = values.astype(dtype)
    assert np.array_equal(words.get(), right.view(np.uint16))
    kernels().elementwise(f"combine_{wire}_sum", span(numbers), span(words))()
    assert np.array_equal(numbers.get(), values + right.astype(np.float32))
    kernels().elementwise(f"unpack_{wire}", span(numbers), span(words))()
    assert np.array_equal(numbers.get(), right.astype(np.float32))


@pytest.mark.parametrize(("given", "allowed", "right"), [
    ("", None, 32), ("", 16, 16), ("24", 16, 24), ("0", 16, 132), ("", 4096, 132)])
def test_sums_of_other_gpus_memory_leave_multiprocessors_to_computing(cp, monkeypatch, given, allowed, right):
    monkeypatch.setenv("SCAFFE_CUDA_MULTIPROCESSORS", given)
    monkeypatch.setattr(cp.cuda.runtime, "deviceGetAttribute", lambda what, number: 132)
    made, launched = Kernels(), []
    monkeypatch.setattr(made, "_get", lambda name: lambda blocks, threads, arguments: launched.append(blocks[0]))
    made.allow(allowed)
    for is_remote in (True, False):
        made.gathering([0], 0, 1 << 30, np.dtype(np.float32), "sum", GatherRanks(0, 2, 0, 1, -1), is_remote)()
    assert launched == [right * BLOCKS_PER_MULTIPROCESSOR, 132 * BLOCKS_PER_MULTIPROCESSOR]


def test_a_number_of_multiprocessors_that_is_none(cp, monkeypatch):
    monkeypatch.setenv("SCAFFE_CUDA_MULTIPROCESSORS", "half")
    with pytest.raises(UserError, match="SCAFFE_CUDA_MULTIPROCESSORS=half: expected a whole number from 0"):
        Kernels()


@pytest.mark.parametrize(("n_bytes", "n_blocks"), [(0, 1), (1, 1), (4096, 1), (4097, 2), (49152, 12), (1 << 30, 12)])
def test_a_thread_takes_a_pack_of_16_bytes_while_blocks_last(n_bytes, n_blocks):
    assert grid(n_bytes, most_blocks=12) == ((n_blocks,), (256,))
