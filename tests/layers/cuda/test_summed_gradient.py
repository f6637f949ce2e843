"""A convolution's gradient by data with other gradients added and ReLU's backward behind: naive references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda.cublas import precision
from scaffe.layers.kernels.specs import ConvSpec
from tests.layers.cuda.conftest import REAL
from tests.layers.cuda.rig import HALVES, close, double, n_eps_of, numbers, stored
from tests.reference import kernels as reference

CASES = [  # in_shape, n_output, kernel, stride, pad, dilation, group
    ((2, 8, 6, 5), 16, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((3, 5, 7, 6), 7, (3, 2), (2, 1), (1, 0), (1, 1), 1),  # behind the last window nothing but the others
    ((1, 4, 5, 5), 6, (1, 1), (2, 2), (0, 0), (1, 1), 2),
    ((2, 3, 9), 4, (4,), (3,), (0,), (1,), 1),
]
DTYPES = (np.dtype(np.float32), *HALVES)


def expected(spec: ConvSpec, gy: np.ndarray, w: np.ndarray, addends: list[np.ndarray], signs: Any) -> np.ndarray:
    x = np.zeros(spec.in_shape)
    _, gx, _, _ = reference.convolution(x, w, None, gy, spec.stride, spec.pad, spec.dilation, spec.group)
    total = gx + sum(map(double, addends))
    return stored(total if signs is None else np.where(double(signs) > 0, total, 0))


@pytest.mark.parametrize("n_addends", [1, 3, 4])
@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("case", CASES)
def test_sums(cp: Any, kind: str, case: tuple, dtype: np.dtype, masks: bool, n_addends: int) -> None:
    if kind == "ours":
        return
    spec = ConvSpec(*case, False, dtype)
    gy, w = numbers(spec.out_shape, dtype, 1), double(numbers(spec.weight_shape, dtype, 2)).astype(np.float32)
    addends = [numbers(spec.in_shape, dtype, 3 + number) for number in range(n_addends)]
    signs = numbers(spec.in_shape, dtype, 9) if masks else None
    if masks:
        signs[0, 0] = 0  # a kink is not above 0
    on_device = [cp.asarray(stored(a)) for a in addends]
    gx = cp.empty(stored(addends[0]).shape, dtype)
    cuda.convolution(spec).backward_data_sum(cp.asarray(stored(gy)), cp.asarray(w), gx, on_device,
                                             None if signs is None else cp.asarray(stored(signs)))
    close(gx, expected(spec, gy, w, addends, signs), dtype, n_eps_of(kind, dtype))
    for array, before in zip(on_device, addends, strict=True):
        np.testing.assert_array_equal(double(array.get()), double(stored(before)))


@pytest.mark.parametrize("n_addends", [1, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("case", CASES)
def test_sign_bits(cp: Any, kind: str, case: tuple, dtype: np.dtype, n_addends: int, monkeypatch: Any) -> None:
    """Refused where their last byte is not full, and where data would have no graph either."""
    if kind == "ours":
        return
    monkeypatch.setattr("scaffe.layers.kernels.cuda.cudnn.plans.chosen_way", lambda key, ways: next(iter(ways)))
    spec = ConvSpec(*case, False, dtype)
    plan = cuda.convolution(spec)
    able = dtype in HALVES and n_addends < 4 and np.prod(spec.in_shape) % 8 == 0
    assert plan.takes_sign_bits(n_addends) == able or REAL
    if not plan.takes_sign_bits(n_addends):
        return
    gy, w = numbers(spec.out_shape, dtype, 1), double(numbers(spec.weight_shape, dtype, 2)).astype(np.float32)
    addends, signs = [numbers(spec.in_shape, dtype, 3 + n) for n in range(n_addends)], numbers(spec.in_shape, dtype, 9)
    signs[0, 0] = 0
    gx = cp.empty(stored(signs).shape, dtype)
    bits = np.packbits((double(stored(signs)) > 0).reshape(-1), bitorder="little")
    plan.backward_data_sum(cp.asarray(stored(gy)), cp.asarray(w), gx, [cp.asarray(stored(a)) for a in addends],
                           cp.asarray(bits))
    close(gx, expected(spec, gy, w, addends, signs), dtype, n_eps_of(kind, dtype))


@pytest.mark.skipif(REAL, reason="looks into the pretend module")
@pytest.mark.parametrize(("dtype", "tf32", "ran"), [
    (np.float32, False, ["conv_dgrad"]), (np.float32, True, ["conv_dgrad+add+relu_backward"]),
    (np.float16, False, ["conv_dgrad+add+relu_backward"])])
def test_one_graph_does_it_where_tensor_cores_may_be_used(cp: Any, kind: str, monkeypatch: Any, dtype: type, tf32: bool,
                                                          ran: list[str]) -> None:
    from tests.pretend.cudnn import pygraph

    if kind == "ours":
        return
    monkeypatch.setattr(precision, "tf32", tf32)
    spec = ConvSpec(*CASES[0], False, np.dtype(dtype))
    plan, arrays = cuda.convolution(spec), [cp.ones(spec.in_shape, dtype) for _ in range(3)]
    gy, w = cp.ones(spec.out_shape, dtype), cp.ones(spec.weight_shape, np.float32)
    monkeypatch.setattr("scaffe.layers.kernels.cuda.cudnn.plans.chosen_way", lambda key, ways: next(iter(ways)))
    for _ in range(2):
        pygraph.log.clear()
        plan.backward_data_sum(gy, w, arrays[0], arrays[1:2], arrays[2])
    assert pygraph.log == ran


@pytest.mark.skipif(REAL, reason="looks into the pretend module")
def test_a_sum_behind_runs_where_that_is_faster(cp: Any, kind: str, monkeypatch: Any) -> None:
    """Both ways give the same numbers, within a rounding: 2 x 8 products of 1, plus 1."""
    from tests.pretend.cudnn import pygraph

    if kind == "ours":
        return
    spec = ConvSpec(*CASES[0], False, np.dtype(np.float16))
    ways: list[list[str]] = []
    monkeypatch.setattr("scaffe.layers.kernels.cuda.cudnn.plans.chosen_way", lambda key, given: (
        ways.append([*given]), [way.run() for way in given.values()], "a sum behind")[-1])
    plan, arrays = cuda.convolution(spec), [cp.ones(spec.in_shape, np.float16) for _ in range(3)]
    gy, w = cp.ones(spec.out_shape, np.float16), cp.ones(spec.weight_shape, np.float32)
    for _ in range(2):
        pygraph.log.clear()
        plan.backward_data_sum(gy, w, arrays[0], arrays[1:2], arrays[2])
    assert (pygraph.log, ways) == (["conv_dgrad"], [["one graph", "a sum behind"]])
    np.testing.assert_array_equal(arrays[0].get(), np.float16(17))
