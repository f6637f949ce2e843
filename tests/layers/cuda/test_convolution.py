"""GPU convolutions, by products and by cuDNN, and inner products: against naive references, all types and options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cuda, device, extents
from scaffe.layers.kernels.cuda import products
from scaffe.layers.kernels.cuda.cudnn import plans as cudnn_plans
from scaffe.layers.kernels.cuda.cudnn.convolution import BY_DATA, ConvKey, halves
from scaffe.layers.kernels.cuda.cudnn.convolution import Convolution as OnCudnn
from scaffe.layers.kernels.specs import ConvPasses, ConvSpec
from tests.layers.cuda.conftest import REAL
from tests.layers.cuda.rig import DTYPES, HALVES, close, double, every_dtype, n_eps_of, numbers, stored, wide
from tests.reference import kernels as reference

CASES = [  # in_shape, n_output, kernel, stride, pad, dilation, group
    ((2, 3, 5, 6), 17, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 6, 7, 7), 4, (3, 2), (2, 1), (1, 0), (1, 1), 2),
    ((2, 8, 6, 5), 8, (1, 1), (1, 1), (0, 0), (1, 1), 1),  # weights lie alike in both orders
    ((1, 4, 7, 6), 8, (2, 3), (1, 1), (2, 1), (3, 2), 4),  # a group a channel, dilated
    ((2, 3, 9), 5, (4,), (3,), (0,), (1,), 1),
    ((1, 2, 4, 5, 4), 3, (2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
    ((1, 2, 2, 3, 2, 3), 2, (2, 2, 1, 2), (1, 1, 1, 2), (1, 0, 0, 1), (1, 2, 1, 1), 1),
]


def spec_of(case: tuple, dtype: np.dtype) -> ConvSpec:
    return ConvSpec(*case, True, dtype)


@every_dtype
@pytest.mark.parametrize("case", CASES)
def test_all_passes(cp: Any, kind: str, case: tuple, dtype: np.dtype) -> None:
    spec, real = spec_of(case, dtype), wide(dtype)
    plan, n_eps = cuda.convolution(spec), n_eps_of(kind, dtype)
    assert isinstance(plan, OnCudnn) == (kind == "cudnn" and dtype != np.float64 and len(spec.kernel) < 4)
    x, gy = numbers(spec.in_shape, dtype, 0), numbers(spec.out_shape, dtype, 1)
    w, b = double(numbers(spec.weight_shape, dtype, 2)).astype(real), numbers(spec.n_output, real, 3)
    y, gx, gw, gb = reference.convolution(x, w, b, gy, spec.stride, spec.pad, spec.dilation, spec.group)
    on_x, on_gy, on_w, on_b = map(cp.asarray, (stored(x), stored(gy), w, b))
    out = cp.empty(stored(y).shape, dtype)
    plan.forward(on_x, on_w, on_b, out)
    close(out, stored(y), dtype, n_eps)
    for slope in (0.0, 0.25):
        plan.forward(on_x, on_w, on_b, out, slope)
        close(out, stored(np.where(y > 0, y, slope * y)), dtype, n_eps)
    plan.forward(on_x, on_w, None, out)
    close(out, stored(y - b.reshape(-1, *(1,) * len(spec.kernel))), dtype, n_eps)
    back = cp.empty(stored(x).shape, dtype)
    plan.backward_data(on_gy, on_w, back)
    close(back, stored(gx), dtype, n_eps)
    on_gw, on_gb = cp.empty(gw.shape, real), cp.empty(gb.shape, real)
    narrow = dtype if isinstance(plan, OnCudnn) else real  # cuDNN rounds the gradient to the type of x
    plan.backward_weights(on_x, on_gy, on_gw, on_gb, True)
    close(on_gw, gw, narrow, n_eps)
    close(on_gb, gb, real, 40)
    plan.backward_weights(on_x, on_gy, on_gw, on_gb)
    close(on_gw, 2 * gw, narrow, n_eps)
    close(on_gb, 2 * gb, real, 40)


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=lambda d: d.name)
def test_weights_may_come_in_the_half_type_in_the_kernels_order(cp: Any, kind: str, dtype: np.dtype) -> None:
    spec = spec_of(CASES[0], dtype)
    plan, x, w = cuda.convolution(spec), numbers(spec.in_shape, dtype, 0), numbers(spec.weight_shape, dtype, 1)
    outs = [cp.empty(stored(np.empty(spec.out_shape)).shape, dtype) for _ in range(2)]
    plan.forward(cp.asarray(stored(x)), cp.asarray(stored(w)), None, outs[0])
    plan.forward(cp.asarray(stored(x)), cp.asarray(w.astype(np.float32)), None, outs[1])
    np.testing.assert_array_equal(*(double(o.get()) for o in outs))
    copy = cp.empty(w.size, dtype)
    cuda.copy_weights(cp.asarray(w.astype(np.float32).reshape(-1)), (w.shape[1], w[0, 0].size), copy)
    np.testing.assert_array_equal(double(copy.get()), double(stored(w).reshape(-1)))


@every_dtype
def test_deconvolution_is_the_convolution_backwards(cp: Any, kind: str, dtype: np.dtype) -> None:
    spec = ConvSpec((2, 4, 7, 5), 6, (3, 2), (2, 1), (1, 0), (1, 1), 2, False, dtype)
    plan, real, n_eps = cuda.deconvolution(spec), wide(dtype), n_eps_of(kind, dtype)
    x, gy = numbers(spec.out_shape, dtype, 0), numbers(spec.in_shape, dtype, 1)
    w, b = double(numbers(spec.weight_shape, dtype, 2)).astype(real), numbers(4, real, 3)
    _, y, gw, _ = reference.convolution(gy, w, None, x, spec.stride, spec.pad, spec.dilation, 2)
    gx, *_ = reference.convolution(gy, w, None, x, spec.stride, spec.pad, spec.dilation, 2)
    y += b.reshape(1, -1, 1, 1)
    out, back = cp.empty(stored(y).shape, dtype), cp.empty(stored(x).shape, dtype)
    on_x, on_gy, on_w = map(cp.asarray, (stored(x), stored(gy), w))
    plan.forward(on_x, on_w, cp.asarray(b), out, 0.5)
    close(out, stored(np.where(y > 0, y, 0.5 * y)), dtype, n_eps)
    plan.backward_data(on_gy, on_w, back)
    close(back, stored(gx), dtype, n_eps)
    on_gw, on_gb = cp.ones(gw.shape, real), cp.ones(4, real)
    plan.backward_weights(on_x, on_gy, on_gw, on_gb)
    close(on_gw, 1 + gw, dtype if kind == "cudnn" else real, n_eps)
    close(on_gb, 1 + double(gy).sum((0, 2, 3)), real, 40)


@pytest.mark.skipif(REAL, reason="looks into the pretend module")
def test_bias_and_relu_are_fused_where_tensor_cores_may_be_used(cp: Any, kind: str, monkeypatch: Any) -> None:
    from tests.pretend.cudnn import pygraph

    if kind == "ours":
        return
    spec = spec_of(CASES[0], np.dtype(np.float32))
    x, w, b = (cp.asarray(numbers(s, spec.dtype, 0)) for s in (spec.in_shape, spec.weight_shape, (spec.n_output,)))
    for tf32, ran in ((False, "conv_fprop"), (True, "conv_fprop+bias+relu")):
        cuda.configure(tf32)
        try:
            plan = cuda.convolution(spec)
            pygraph.log.clear()
            plan.forward(x, w, b, cp.empty(spec.out_shape, spec.dtype), 0.0)
            assert pygraph.log[-1] == ran
        finally:
            cuda.configure(False)


@pytest.mark.skipif(REAL, reason="counts the pretend module's runs")
def test_plans_of_passes_that_run_are_timed_once_and_remembered(cp: Any, kind: str, tmp_path: Any) -> None:
    from tests.pretend.cudnn import pygraph

    if kind == "ours":
        return
    spec = spec_of(CASES[0], np.dtype(np.float32))
    passes = {"conv_fprop": ConvPasses(), "conv_dgrad": ConvPasses(forward=False, by_data=True),
              "conv_wgrad": ConvPasses(forward=False, by_weights=True)}
    for number, (name, wanted) in enumerate(passes.items(), 1):
        pygraph.log.clear()
        plan = cuda.convolution(spec)
        assert not pygraph.log
        plan.scratch(wanted)
        assert set(pygraph.log) == {name}
        assert len(list((tmp_path / "cudnn_plans").iterdir())) == 1 + number  # and the lock
    pygraph.log.clear()
    cuda.convolution(spec).scratch(ConvPasses(by_data=True, by_weights=True))
    cudnn_plans.build.cache_clear()  # as a new process would
    cuda.convolution(spec).scratch(ConvPasses(by_data=True, by_weights=True))
    assert not pygraph.log


@pytest.mark.skipif(REAL, reason="sets the pretend device's workspaces")
@every_dtype
@pytest.mark.parametrize("least", [8, 4, 2, 1])
def test_a_large_workspace_is_exchanged_for_micro_batches(cp: Any, kind: str, dtype: np.dtype, least: int,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """All passes, added up and not, against the definition; also with the plan as it was kept."""
    from tests.pretend.cudnn import pygraph

    if kind == "ours" or dtype == np.float64:
        return
    monkeypatch.setattr(cudnn_plans, "SMALL_BYTES", least * 1000)
    monkeypatch.setattr(cudnn_plans, "seconds_of", lambda work: work() or pygraph.log.append("timed") or float(
        running[-1]))  # a half takes half as long
    monkeypatch.setattr(pygraph, "workspace", staticmethod(lambda graph, index: 1000 * graph.shape[0]))
    running, execute = [0], pygraph.execute_plan_at_index

    def noted(graph: Any, *rest: Any, **how: Any) -> None:
        running.append(graph.shape[0])
        execute(graph, *rest, **how)
    monkeypatch.setattr(pygraph, "execute_plan_at_index", noted)
    spec = ConvSpec((8, 4, 4, 2), 8, (3, 1), (1, 1), (1, 0), (1, 1), 1, True, dtype)
    x, gy = numbers(spec.in_shape, dtype, 0), numbers(spec.out_shape, dtype, 1)
    w, b = double(numbers(spec.weight_shape, dtype, 2)).astype(wide(dtype)), numbers(8, wide(dtype), 3)
    y, gx, gw, gb = reference.convolution(x, w, b, gy, spec.stride, spec.pad, spec.dilation, 1)
    on_x, on_gy, on_w, on_b = map(cp.asarray, (stored(x), stored(gy), w, b))
    for _ in range(2):
        plan, n_eps = cuda.convolution(spec), n_eps_of(kind, dtype)
        plan.scratch(ConvPasses(True, True, None, True, True))
        del running[1:]
        out, back = cp.empty(stored(y).shape, dtype), cp.empty(stored(x).shape, dtype)
        on_gw, on_gb = cp.empty(gw.shape, w.dtype), cp.empty(8, w.dtype)
        plan.forward(on_x, on_w, on_b, out)
        plan.backward_data(on_gy, on_w, back)
        plan.backward_weights(on_x, on_gy, on_gw, on_gb, True)
        assert running[1:] == [least] * (3 * 8 // least)
        close(out, stored(y), dtype, n_eps)
        close(back, stored(gx), dtype, n_eps)
        close(on_gw, gw, dtype, 2 * n_eps)
        plan.backward_weights(on_x, on_gy, on_gw, on_gb)
        close(on_gw, 2 * gw, dtype, 2 * n_eps)
        close(on_gb, 2 * gb, w.dtype, 40)
        cudnn_plans.build.cache_clear()


@pytest.mark.parametrize(("shape", "n_images"), [((16, 4, 3, 3), [8, 4, 2]), ((12, 4, 3, 3), [6, 3]),
                                                 ((5, 4, 3, 3), []), ((8, 3, 3, 3), [4])])
def test_micro_batches_begin_at_aligned_images(cp: Any, shape: tuple, n_images: list[int]) -> None:
    """Of the last, an image is 27 numbers of 4 bytes: four of them are a multiple of 16 bytes, two are not."""
    key = ConvKey(BY_DATA, ConvSpec(shape, 4, (1, 1), (1, 1), (0, 0), (1, 1)), False)
    assert [half.spec.in_shape for half in halves(key)] == [(n, *shape[1:]) for n in n_images]


def forward(cp: Any, dtype: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """A new plan's pass with bias and ReLU: the plan, the result, and what it should be."""
    spec = spec_of(CASES[0], np.dtype(dtype))
    plan, x, w = (cuda.convolution(spec), *(numbers(s, spec.dtype, 0) for s in (spec.in_shape, spec.weight_shape)))
    b = numbers(spec.n_output, np.dtype(np.float32), 2)
    out = cp.empty(stored(np.empty(spec.out_shape)).shape, spec.dtype)
    y, *_ = reference.convolution(x, w, b, np.zeros(spec.out_shape), spec.stride, spec.pad, spec.dilation, spec.group)
    plan.forward(cp.asarray(stored(x)), cp.asarray(w.astype(np.float32)), cp.asarray(b), out, 0.0)
    return plan, out, stored(np.maximum(y, 0))


@pytest.mark.skipif(REAL, reason="counts the pretend module's runs")
@pytest.mark.parametrize("damage", [False, True])
def test_a_compiled_plan_is_kept_and_compiled_again_where_the_file_is_damaged(cp: Any, kind: str, tmp_path: Any,
                                                                             damage: bool) -> None:
    from tests.pretend.cudnn import pygraph

    if kind == "ours":
        return
    forward(cp, HALVES[0])
    pygraph.compiled.clear()
    cudnn_plans.build.cache_clear()  # as another rank, or the next run
    if damage:
        for path in (tmp_path / "cudnn_plans").iterdir():
            path.write_bytes(path.read_bytes()[:-1])
    _, out, expected = forward(cp, HALVES[0])
    assert bool(pygraph.compiled) == damage
    close(out, expected, HALVES[0])


@pytest.mark.skipif(REAL, reason="sets the pretend device's times")
@pytest.mark.parametrize("slow", ["conv_fprop+bias+relu", "conv_fprop", "nothing"])
def test_one_graph_is_compared_with_two_steps(cp: Any, kind: str, monkeypatch: Any, slow: str) -> None:
    from tests.pretend.cudnn import pygraph

    if kind == "ours":
        return
    cuda_module = device.load().cuda
    monkeypatch.setattr(cuda_module, "get_elapsed_time", lambda start, end: 2.0 if pygraph.log[-1] == slow else 1.0)
    plan, out, expected = forward(cp, HALVES[1])
    assert plan.forward_graph(True, 0.0)[1] == (slow != "conv_fprop+bias+relu")
    close(out, expected, HALVES[1])
    cudnn_plans.build.cache_clear()
    monkeypatch.setattr(cuda_module, "get_elapsed_time", lambda start, end: 1 / 0)  # nothing is timed again
    assert cuda.convolution(plan.spec).forward_graph(True, 0.0)[1] == (slow != "conv_fprop+bias+relu")


def test_nine_spatial_axes_are_refused_with_a_line(cp: Any, kind: str) -> None:
    with pytest.raises(LayerError, match="at most 8 spatial axes, got 9"):
        cuda.convolution(ConvSpec((1, 1, *(2,) * 9), 1, (1,) * 9, (1,) * 9, (0,) * 9, (1,) * 9))


def test_images_are_unfolded_some_at_a_time(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(((5, *CASES[0][0][1:]), *CASES[0][1:]), np.dtype(np.float64))
    x, gy, w = (numbers(s, spec.dtype, i) for i, s in enumerate((spec.in_shape, spec.out_shape, spec.weight_shape)))
    y, gx, gw, gb = reference.convolution(x, w, None, gy, spec.stride, spec.pad, spec.dilation, 1)
    monkeypatch.setattr(products, "MOST_COLUMN_BYTES", 2 * 8 * 30 * 27)  # two images' columns
    plan = products.Convolution(spec)
    on_x, on_gy, on_w = map(cp.asarray, (stored(x), stored(gy), w))
    out, back, on_gw = cp.empty(stored(y).shape), cp.empty(stored(x).shape), cp.empty(w.shape)
    plan.forward(on_x, on_w, None, out)
    plan.backward_data(on_gy, on_w, back)
    plan.backward_weights(on_x, on_gy, on_gw, None, True)
    for got, expected in ((out, stored(y)), (back, stored(gx)), (on_gw, gw)):
        close(got, expected, spec.dtype)


@every_dtype
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 17, 5), (16, 8, 130)])
def test_inner_product(cp: Any, m: int, n: int, k: int, transpose: bool, dtype: np.dtype) -> None:
    plan, real = cuda.inner_product(m, n, k, transpose, dtype), wide(dtype)
    x, w, gy = (numbers(s, dtype, i) for i, s in enumerate(((m, k), (n, k), (m, n))))
    b = numbers(n, real, 4)
    held = cp.asarray(np.ascontiguousarray(double(w.T if transpose else w).astype(real)))
    on_x, on_gy, on_b = map(cp.asarray, (x, gy, b))
    y, gw = double(x) @ double(w).T + b, double(gy).T @ double(x)
    out, back, on_gw, on_gb = (cp.empty(*a) for a in (((m, n), dtype), ((m, k), dtype), (held.shape, real), (n, real)))
    plan.forward(on_x, held, on_b, out)
    close(out, y, dtype)
    plan.forward(on_x, held, on_b, out, 0.5)
    close(out, np.where(y > 0, y, 0.5 * y), dtype)
    plan.backward_data(on_gy, held, back)
    close(back, double(gy) @ double(w), dtype)
    for overwrite, times in ((True, 1), (False, 2)):
        plan.backward_weights(on_x, on_gy, on_gw, on_gb, overwrite)
        close(on_gw, times * (gw.T if transpose else gw), real, 40)
        close(on_gb, times * double(gy).sum(0), real, 40)


@every_dtype
@pytest.mark.parametrize(("n", "starts"), [(48, [0, 16, 32]), (50, [0, 32]), (31, [])])
def test_gradients_of_long_weights_come_by_rows(cp: Any, n: int, starts: list[int], dtype: np.dtype,
                                                monkeypatch: Any) -> None:
    real = wide(dtype)
    monkeypatch.setattr(extents, "BLOCK_BYTES", 16 * 7 * real.itemsize)
    plan = cuda.inner_product(3, n, 7, False, dtype)
    x, gy = numbers((3, 7), dtype, 0), numbers((3, n), dtype, 1)
    on_x, on_gy, whole = cp.asarray(x), cp.asarray(gy), cp.empty((n, 7), real)
    assert [block.start for block in plan.rows] == starts
    for overwrite, times in ((True, 1), (False, 2)):
        plan.backward_weights(on_x, on_gy, whole, None, overwrite)
        close(whole, times * double(gy).T @ double(x), real, 40)
    plan.backward_weights(on_x, on_gy, whole, None, True)
    for block in plan.rows:
        part = cp.empty((block.stop - block.start) * 7, real)
        plan.backward_rows(on_x, on_gy, block, part)
        assert cp.asnumpy(part).tobytes() == cp.asnumpy(whole)[block].tobytes()
    assert not cuda.inner_product(3, n, 7, True, dtype).rows
