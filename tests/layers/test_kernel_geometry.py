"""Convolutions, poolings and LRN with their gradients against loops: more geometry, float64, other memory, handles."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.cpu.onednn.primitive import can_pool
from scaffe.layers.kernels.specs import ConvSpec, LrnSpec, PoolSpec
from tests.layers.rig import spread
from tests.reference import kernels as naive

WIDE, NARROW = np.dtype(np.float64), np.dtype(np.float32)
BACKENDS = ("onednn", "portable", "portable float64")
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def conv(in_shape: tuple[int, ...], n: int, kernel: Any, stride: Any = 1, pad: Any = 0, dilation: Any = 1,
         group: int = 1, bias: bool = True) -> ConvSpec:
    """A float32 convolution; one number stands for all axes."""
    axes = [v if isinstance(v, tuple) else (v,) * (len(in_shape) - 2) for v in (kernel, stride, pad, dilation)]
    return ConvSpec(in_shape, n, *axes, group, bias, NARROW)


CONVOLUTIONS = {
    "LeNet's second": conv((2, 20, 12, 12), 50, 5),
    "1x1": conv((3, 17, 4, 5), 3, 1),
    "1x1 strided": conv((1, 3, 5, 4), 17, 1, stride=2, bias=False),
    "kernel wider than the image": conv((1, 3, 2, 3), 4, 5, pad=2),
    "one channel, one image": conv((1, 1, 7, 6), 1, 3, pad=1),
    "stride and pad leave a remainder": conv((2, 3, 8, 9), 17, 3, stride=2, pad=1),
    "11x11 by 4": conv((1, 3, 23, 23), 8, 11, stride=4),
    "dilated": conv((2, 4, 9, 8), 6, 3, pad=2, dilation=2),
    "dilated and strided": conv((1, 16, 11, 10), 16, (3, 2), stride=(1, 2), pad=(3, 1), dilation=(3, 2)),
    "groups": conv((2, 6, 5, 5), 9, 3, pad=1, group=3),
    "groups of many channels": conv((1, 32, 6, 6), 64, 3, pad=1, group=2, bias=False),
    "depthwise": conv((2, 17, 5, 6), 17, 3, pad=1, group=17),
    "unequal axes": conv((2, 3, 6, 10), 5, (1, 4), stride=(2, 3), pad=(0, 1)),
    "one axis": conv((2, 5, 9), 4, 3, stride=2, pad=1),
    "three axes": conv((1, 3, 4, 5, 6), 4, (2, 3, 2), pad=(0, 1, 1)),
}


def plan_of(spec: Any, backend: str, **options: Any) -> Any:
    """The kernel of a backend; skips where oneDNN is missing or leaves the case to the portable kernels."""
    made: Any
    if backend == "onednn":
        if library() is None:
            pytest.skip(cpu.describe())
        made = (cpu.convolution if isinstance(spec, ConvSpec) else cpu.pooling)(spec, **options)
        if "onednn" not in type(made).__module__:
            pytest.skip("oneDNN has no kernel for this case")
        return made
    if isinstance(spec, ConvSpec):
        from scaffe.layers.kernels.cpu.conv.portable import Convolution as Portable
    else:
        from scaffe.layers.kernels.cpu.portable_pooling import Pooling as Portable  # type: ignore[assignment]
    return Portable(spec)  # type: ignore[arg-type]


def dtype_of(backend: str) -> np.dtype:
    """What the backend computes in."""
    return WIDE if backend.endswith("64") else NARROW


def stored(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Caffe's order to channels-last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1), dtype)


def logical(x: np.ndarray) -> np.ndarray:
    """Channels-last to Caffe's order."""
    return np.moveaxis(x, -1, 1)


def close(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal to the precision of got."""
    rtol = 1e-10 if got.dtype == WIDE else 2e-5
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * max(float(np.abs(expected).max()), 1.0))


class Bench:
    """Arrays of one convolution on one backend, and what loops say."""

    def __init__(self, spec: ConvSpec, backend: str) -> None:
        self.spec, self.dtype = spec, dtype_of(backend)
        x, w = spread(spec.in_shape), spread(spec.weight_shape, seed=1)
        gy = spread(spec.out_shape, seed=2)
        b = spread((spec.n_output,), seed=3) if spec.bias else None
        self.y, self.gx, self.gw, self.gb = naive.convolution(x, w, b, gy, spec.stride, spec.pad, spec.dilation,
                                                              spec.group)
        self.x, self.top_diff = stored(x, self.dtype), stored(gy, self.dtype)
        self.w, self.b = w.astype(self.dtype), None if b is None else b.astype(self.dtype)
        self.plan = plan_of(spec, backend)

    def empty(self, like: np.ndarray) -> np.ndarray:
        """A channels-last array of garbage for a result in Caffe's order."""
        return np.full_like(stored(like, self.dtype), 77)


@each_backend
@pytest.mark.parametrize("slope", [None, 0.0, 0.1])
@pytest.mark.parametrize("spec", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolution_forward(spec: ConvSpec, slope: float | None, backend: str) -> None:
    bench = Bench(spec, backend)
    y = bench.empty(bench.y)
    bench.plan.forward(bench.x, bench.w, bench.b, y, slope)
    expected = bench.y if slope is None else np.where(bench.y > 0, bench.y, slope * bench.y)
    close(logical(y), expected)


@each_backend
@pytest.mark.parametrize("spec", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolution_backward_data(spec: ConvSpec, backend: str) -> None:
    bench = Bench(spec, backend)
    gx = bench.empty(bench.gx)
    bench.plan.backward_data(bench.top_diff, bench.w, gx)
    close(logical(gx), bench.gx)


@each_backend
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("spec", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolution_backward_weights(spec: ConvSpec, overwrite: bool, backend: str) -> None:
    bench = Bench(spec, backend)
    gw, gb = np.full_like(bench.w, 3), np.full(spec.n_output, 5, bench.dtype) if spec.bias else None
    bench.plan.backward_weights(bench.x, bench.top_diff, gw, gb, overwrite)
    close(gw, bench.gw + (0 if overwrite else 3))
    if gb is not None:
        close(gb, bench.gb + (0 if overwrite else 5))


@each_backend
def test_convolution_follows_the_arrays_it_is_given(backend: str) -> None:
    bench = Bench(CONVOLUTIONS["groups"], backend)
    for factor in (1, 2, 1):
        y, w = bench.empty(bench.y), bench.w * factor
        bench.plan.forward(bench.x, w, bench.b * factor, y)
        close(logical(y), bench.y * factor)


POOLINGS = {
    "2x2": ((2, 3, 4, 6), 2, 2, 0),
    "ceil makes a short last window": ((2, 17, 6, 5), 3, 2, 0),
    "padded": ((1, 3, 7, 8), 3, 2, 1),
    "a window that would start in the padding": ((1, 2, 3, 3), 2, 2, 1),
    "a short window past the padding": ((1, 16, 6, 6), 3, 2, 1),
    "overlapping, size kept": ((2, 5, 5, 4), 3, 1, 1),
    "global": ((2, 8, 7, 7), 7, 1, 0),
    "stride wider than the kernel": ((1, 1, 8, 5), 2, 3, 0),
}


def pool_spec(case: tuple, method: str, ceil: bool, dtype: np.dtype) -> PoolSpec:
    """A square window's geometry."""
    shape, kernel, stride, pad = case
    return PoolSpec(shape, method, (kernel,) * 2, (stride,) * 2, (pad,) * 2, ceil, dtype)


@each_backend
@pytest.mark.parametrize("ceil", [True, False])
@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("case", POOLINGS.values(), ids=POOLINGS.keys())
def test_pooling(case: tuple, method: str, ceil: bool, backend: str) -> None:
    dtype = dtype_of(backend)
    spec = pool_spec(case, method, ceil, dtype)
    x, top_diff = spread(spec.in_shape), spread(spec.out_shape, seed=4)
    y, places, gx = naive.pooling(x, top_diff, method, spec.kernel, spec.stride, spec.pad)
    plan = plan_of(spec, backend)
    got, got_gx = np.full_like(stored(y, dtype), 77), np.full_like(stored(x, dtype), 77)
    plan.forward(stored(x, dtype), got)
    plan.backward(stored(top_diff, dtype), got_gx)
    close(logical(got), y)
    close(logical(got_gx), gx)
    if backend != "onednn" and method == "MAX":
        mask = np.zeros_like(got)
        plan.forward(stored(x, dtype), got, mask)
        np.testing.assert_array_equal(logical(mask), places)


def test_onednn_averages_only_where_its_windows_count_as_caffes() -> None:
    case = POOLINGS["a short window past the padding"]
    assert not can_pool(pool_spec(case, "AVE", True, NARROW))
    assert can_pool(pool_spec(POOLINGS["ceil makes a short last window"], "AVE", True, NARROW))


@pytest.mark.parametrize("method", ["MAX", "AVE", "STOCHASTIC"])
def test_a_window_behind_the_end_is_refused(method: str) -> None:
    case = ((1, 1, 9, 8), 2, 3, 0)
    with pytest.raises(LayerError, match="round_mode: FLOOR leaves it out"):
        cpu.pooling(pool_spec(case, method, True, NARROW))
    assert pool_spec(case, method, False, NARROW).out_spatial == (3, 3)
    cpu.pooling(pool_spec(case, method, False, NARROW))


@pytest.mark.parametrize("dtype", [NARROW, WIDE])
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("window, beta, k", [(5, 0.75, 1.0), (3, 0.6, 2.0), (7, 0.75, 1.5), (1, 0.5, 1.0)])
@pytest.mark.parametrize("shape", [(2, 17, 3, 4), (1, 3, 5, 5), (1, 1, 2, 2)])
def test_lrn(shape: tuple, window: int, beta: float, k: float, within: bool, dtype: np.dtype) -> None:
    x, top_diff = spread(shape, -2, 2), spread(shape, seed=1)
    y, gx = naive.lrn(x, top_diff, window, 1.7, beta, k, within)
    plan = cpu.lrn(LrnSpec(shape, window, 1.7, beta, k, within, dtype))
    mine, gy = stored(x, dtype), stored(top_diff, dtype)
    got, got_gx = np.empty_like(mine), np.empty_like(mine)
    plan.forward(mine, got)
    plan.backward(mine, got, gy, got_gx)
    close(logical(got), y)
    close(logical(got_gx), gx)


@pytest.mark.skipif(library() is None, reason=cpu.describe())
def test_plans_give_their_handles_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from scaffe.layers.kernels.cpu.onednn import library as module

    alive: list[str] = []
    make, drop = module.Library.make, module._Handle.__del__

    def count(self: Any, function: str, *args: Any) -> Any:
        handle = make(self, function, *args)
        alive.append(function)
        return handle

    def discount(handle: Any) -> None:
        alive.pop()
        drop(handle)

    monkeypatch.setattr(module.Library, "make", count)
    monkeypatch.setattr(module._Handle, "__del__", discount)
    bench = Bench(CONVOLUTIONS["groups"], "onednn")
    bench.plan.backward_data(bench.top_diff, bench.w, bench.empty(bench.gx))
    assert len(alive) > 10
    del bench
    gc.collect()
    assert not alive
