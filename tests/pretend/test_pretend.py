"""The pretend CuPy itself: what it refuses, how its streams order work, what its emulator of thread blocks finds."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from tests import pretend

pytestmark = pretend.needs_compiler
SOURCE = r"""
extern "C" __global__ void total(const float* x, float* y, int n) {
    __shared__ float sums[32];
    extern __shared__ float spare[];
    float sum = 0;
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x) sum += x[i];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < blockDim.x) spare[threadIdx.x] = sums[threadIdx.x / 32];
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = threadIdx.x < blockDim.x / 32 ? spare[threadIdx.x * 32] : 0.f;
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x == 0) atomicAdd(y, sum);
}
extern "C" __global__ void turned(const int* x, int* y) {  // BARRIER keeps writers before readers
    __shared__ int tile[256];
    tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    BARRIER;
    y[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void misaligned(const float* x, float4* y) { y[threadIdx.x] = *(const float4*)(x + 1); }
extern "C" __global__ void outside(float* x, int at) { x[at] = 1; }
extern "C" __global__ void stuck(float* x) { if (threadIdx.x) __syncthreads(); else __syncwarp(); }
extern "C" __global__ void halves(const unsigned short* x, float* f, unsigned short* h, unsigned short* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    f[i] = half_bits_to_float(x[i]);
    h[i] = float_to_half_bits(f[i]);
    b[i] = float_to_bfloat_bits(f[i]);
}
"""


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch) -> Any:
    return pretend.install(monkeypatch)


def kernel(cp: Any, name: str, barrier: str = "__syncthreads()") -> Any:
    """One of SOURCE's."""
    return cp.RawModule(code=SOURCE, options=(f"-DBARRIER={barrier}",)).get_function(name)


def test_numpy_arrays_are_refused_as_cupy_does(cp: Any) -> None:
    a, b = cp.ones((3, 4), np.float32), np.ones((3, 4), np.float32)
    for mistake in (lambda: a + b, lambda: np.add(a, b, out=a), lambda: np.asarray(a), lambda: np.dot(a, b.T),
                    lambda: np.copyto(a, b), lambda: a.__setitem__(0, b[0]), lambda: np.concatenate([a, b])):
        with pytest.raises((TypeError, ValueError)):
            mistake()
    with pytest.raises(AttributeError):
        cp.insert  # noqa: B018 - NumPy has it, CuPy has not
    np.testing.assert_array_equal((np.moveaxis(a, 0, 1) * 2 + np.float32(1)).get(), np.full((4, 3), 3))


def test_new_memory_is_poisoned_and_views_share_it(cp: Any) -> None:
    assert np.isnan(cp.empty(5, np.float32).get()).all()
    a = cp.zeros(12, np.float32)
    a.reshape(3, 4)[1:, ::2] += 5
    assert a.get().sum() == 20
    assert a[4:].data.ptr == a.data.ptr + 16


def test_a_block_reduces_with_shuffles_and_shared_memory(cp: Any) -> None:
    x = np.arange(10_001, dtype=np.float32) % 7
    y = cp.zeros(1, np.float32)
    kernel(cp, "total")((3,), (96,), (cp.asarray(x), y, np.int32(x.size)), shared_mem=4 * 96)
    assert float(y[0]) == x.sum()


def test_a_missing_barrier_gives_a_wrong_result(cp: Any) -> None:
    x = np.arange(512, dtype=np.int32)
    expected = x.reshape(2, 256)[:, ::-1].ravel()
    for barrier, is_right in (("__syncthreads()", True), ("(void)0", False)):
        y = cp.zeros(512, np.int32)
        kernel(cp, "turned", barrier)((2,), (256,), (cp.asarray(x), y))
        assert np.array_equal(y.get(), expected) == is_right


def test_what_a_device_would_punish_is_found(cp: Any) -> None:
    x = cp.zeros(5, np.float32)
    with pytest.raises(RuntimeError, match="misaligned address"):
        kernel(cp, "misaligned")((1,), (2,), (x, cp.zeros(8, np.float32)))
    with pytest.raises(AssertionError, match="behind"):
        kernel(cp, "outside")((1,), (1,), (x, np.int32(5)))
    with pytest.raises(RuntimeError, match="not reached by all"):
        kernel(cp, "stuck")((1,), (64,), (x,))
    with pytest.raises(TypeError, match="4 bytes"):
        kernel(cp, "outside")((1,), (1,), (x, 5))  # a Python number is 8 bytes, the kernel reads 4
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):
        kernel(cp, "outside")((1,), (2048,), (x, np.int32(0)))


def test_half_precision_rounds_as_numpy_does(cp: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = np.arange(1 << 16, dtype=np.uint16)
    outputs = [cp.empty(bits.size, dtype) for dtype in (np.float32, np.uint16, np.uint16)]
    kernel(cp, "halves")((256,), (256,), (cp.asarray(bits), *outputs))
    floats, halves, bfloats = (o.get() for o in outputs)
    number = ~np.isnan(floats)
    np.testing.assert_array_equal(floats, bits.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(halves[number], bits[number])
    with np.errstate(invalid="ignore"):
        expected = floats.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(bfloats[number], expected[number])


def test_deferred_streams_show_a_missing_order(cp: Any) -> None:
    one, two = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    x = cp.zeros(4, np.float32)
    with pretend.deferring():
        with one:
            x += 1
        with two:
            early = x * 3
        assert early.get(two).tolist() == [0] * 4
        two.wait_event(one.record())
        with two:
            late = x * 3
        assert late.get(two).tolist() == [3] * 4


def test_pinned_memory_is_read_when_the_copy_runs_and_pageable_memory_at_once(cp: Any) -> None:
    pinned = np.frombuffer(cp.cuda.alloc_pinned_memory(16), np.float32, 4)
    pageable = np.zeros(4, np.float32)
    pinned[:] = 0
    stream = cp.cuda.Stream(non_blocking=True)
    a, b = cp.empty(4, np.float32), cp.empty(4, np.float32)
    with pretend.deferring():
        a.set(pinned, stream)
        b.set(pageable, stream)
        pinned[:] = pageable[:] = 7
        assert a.get(stream).tolist() == [7] * 4
        assert b.get(stream).tolist() == [0] * 4


def test_a_graph_replays_on_the_same_memory_and_forbids_waiting(cp: Any) -> None:
    main, side = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    x, y = cp.ones(4, np.float32), cp.zeros(4, np.float32)
    main.begin_capture()
    with main:
        x *= 2
        side.wait_event(main.record())
        with side:
            y += x
        main.wait_event(side.record())
        z = x + y
        with pytest.raises(RuntimeError, match="capturing"):
            x.get()
    graph = main.end_capture()
    assert x.get().tolist() == [1] * 4
    for _ in range(3):
        graph.launch(main)
    main.synchronize()
    assert (x.get() + y.get() - z.get()).tolist() == [0] * 4
    assert y.get().tolist() == [2 + 4 + 8] * 4


def test_a_capture_takes_copies_of_pinned_memory_only(cp: Any) -> None:
    """A graph keeps the address: it would copy what a later launch finds there."""
    pageable, x = np.full(4, 3, np.float32), cp.zeros(4, np.float32)
    pinned = np.frombuffer(cp.cuda.alloc_pinned_memory(16), np.float32, 4)
    pinned[:] = 1
    with cp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        for copy in (lambda: x.set(pageable), lambda: cp.asarray(pageable), lambda: cp.array([1.0]),
                     lambda: x.data.copy_from_host_async(pageable.ctypes.data, 16),
                     lambda: cp.cuda.runtime.memcpyAsync(x.data.ptr, pageable.ctypes.data, 16, 1, stream.ptr)):
            with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
                copy()
        x.set(pinned)
        graph = stream.end_capture()
        for value in (1, 5):
            pinned[:] = value
            graph.launch()
            assert x.get().tolist() == [value] * 4


def test_waits_of_the_host_are_listed(cp: Any) -> None:
    x = cp.ones(4, np.float32)
    x *= 2
    assert pretend.settings.waits == []
    float(x.sum())
    x.device.synchronize()
    assert pretend.settings.waits == ["get", "device"]


@pytest.mark.parametrize("types", [(0, 0, 68), (1, 1, 70), (2, 0, 68), (2, 2, 68)])
def test_gemm_on_columns(cp: Any, types: tuple[int, int, int]) -> None:
    """Row-major C (m, n) = A Bᵀ is column-major Cᵀ (n, m) = (B) Aᵀ."""
    dtypes = {0: np.float32, 1: np.float64, 2: np.float16}
    narrow, wide, compute = types
    a = np.arange(6).reshape(2, 3).astype(dtypes[narrow])
    b = np.arange(12).reshape(4, 3).astype(dtypes[narrow])
    c = cp.ones((2, 4), dtypes[wide])
    one = np.ones(1, np.float64 if compute == 70 else np.float32)
    da, db = cp.asarray(a), cp.asarray(b)
    cp.cuda.cublas.gemmEx(1, 1, 0, 4, 2, 3, one.ctypes.data, db.data.ptr, narrow, 3, da.data.ptr, narrow, 3,
                          one.ctypes.data, c.data.ptr, wide, 4, compute, -1)
    np.testing.assert_array_equal(c.get(), a.astype(float) @ b.astype(float).T + 1)


def test_cublas_in_a_capture(cp: Any) -> None:
    """CuPy's calls refuse it, the library's own work where it was given its workspace."""
    from scaffe.layers.kernels.cuda.cublas import matrix, multiply

    a, b, c = (cp.asarray(np.full((2, 2), n, np.float32)) for n in (1, 2, 0))
    with cp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        with pytest.raises(NotImplementedError, match="cuBLAS API during stream capture"):
            cp.cuda.cublas.gemmEx(1, *range(18))
        multiply(2, 2, 2, matrix(a), matrix(b), matrix(c), (a.dtype, c.dtype))
        graph = stream.end_capture()
        assert not c.get().any()
        graph.launch()
        assert (c.get() == 4).all()


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cp = pretend.install(monkeypatch, n_devices=0)
    assert not cp.cuda.is_available()
    with pytest.raises(RuntimeError, match="no CUDA-capable device"):
        cp.cuda.runtime.getDeviceCount()


def test_memory_is_found_by_address(cp: Any) -> None:
    x = cp.asarray(np.arange(8, dtype=np.float32))
    memory = cp.cuda.UnownedMemory(x.data.ptr, x.nbytes, x)
    view = cp.ndarray((3,), np.float32, cp.cuda.MemoryPointer(memory, 8))
    view += 10
    assert x.get().tolist() == [0, 1, 12, 13, 14, 5, 6, 7]
    assert ctypes.c_float.from_address(x.data.ptr + 8).value == 12


def test_another_process_opens_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    cp = pretend.install(monkeypatch, ipc=True)
    x = cp.zeros(2048, np.float32)
    handle = cp.cuda.runtime.ipcGetMemHandle(x.data.ptr)
    program = f"""
import ctypes
from tests.pretend.memory import open_handle
ctypes.c_float.from_address(open_handle({handle!r}) + 8).value = 5
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert x.get()[:4].tolist() == [0, 0, 5, 0]


def test_every_thread_begins_with_device_0_and_streams_belong_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cp = pretend.install(monkeypatch, n_devices=2)
    cp.cuda.Device(1).use()
    stream, found, errors = cp.cuda.Stream(), [], []

    def elsewhere() -> None:
        found.append(cp.cuda.Device().id)
        try:
            stream.use()
        except RuntimeError as error:
            errors.append(str(error))
        with cp.cuda.Device(1), stream:
            found.append(cp.cuda.Device().id)
        found.append(cp.cuda.Device().id)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [0, 1, 0]
    assert "does not match with the current device (0)" in errors[0]
    assert (cp.zeros(1).device.id, cp.cuda.Device().id) == (1, 1)
    with pytest.raises(RuntimeError, match="another GPU's"), cp.cuda.Device(0):
        cp.cuda.Event().record(stream)
    cp.cuda.Device(0).use()
