"""The fused update kernels against the formulas, element by element, over segments with multipliers of their own."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.specs import Segment
from tests.layers.cuda.rig import close, double, numbers

N_ELEMS = 9000  # more than a chunk
SEGMENTS = (Segment(0, 5, 1.0, 1.0), Segment(16, 8500, 2.0, 0.0), Segment(8501, 8999, 0.5, 3.0))
NUMBERS = {"rate": 0.1, "momentum": 0.9, "second": 0.99, "delta": 1e-3}


@dataclass
class Hyper:
    rate: float = 0.1
    decay: float = 0.05
    l1: bool = False
    scale: float = 0.5
    iteration: int = 0
    keeps_step: bool = False


def expected(rule: str, g: np.ndarray, h: list[np.ndarray], rate: float) -> tuple[np.ndarray, list[np.ndarray]]:
    """What is taken off, and the new histories; g is decayed already."""
    m, second, delta = (NUMBERS[name] for name in ("momentum", "second", "delta"))
    if rule == "SGD":
        new = [m * h[0] + rate * g]
        return new[0], new
    if rule == "Nesterov":
        new = [m * h[0] + rate * g]
        return (1 + m) * new[0] - m * h[0], new
    if rule == "LocalUpdate":
        return rate * g, [h[0] + g]
    if rule == "AdaGrad":
        new = [h[0] + g * g]
        return rate * g / (np.sqrt(new[0]) + delta), new
    if rule == "RMSProp":
        new = [second * h[0] + (1 - second) * g * g]
        return rate * g / (np.sqrt(new[0]) + delta), new
    if rule == "AdaDelta":
        mean = m * h[0] + (1 - m) * g * g
        step = g * np.sqrt((delta + h[1]) / (delta + mean))
        return rate * step, [mean, m * h[1] + (1 - m) * step * step]
    first, mean = m * h[0] + (1 - m) * g, second * h[1] + (1 - second) * g * g
    return rate * first / (np.sqrt(mean) + delta), [first, mean]


def rule_of(name: str) -> Any:
    return SimpleNamespace(name=name, n_histories=2 if name in ("AdaDelta", "Adam") else 1,
                           numbers=lambda hyper: {**NUMBERS, "rate": hyper.rate})


def check(cp: Any, name: str, dtype: np.dtype, hyper: Hyper, factor: Any = 1.0, times: float = 1.0, copy: Any = None,
          by: int = 0) -> None:
    rule = rule_of(name)
    w, g = numbers(N_ELEMS, dtype, 0), numbers(N_ELEMS, dtype, 1)
    histories = [numbers(N_ELEMS, dtype, 2 + i, 0, 1) for i in range(rule.n_histories)]

    def placed(a: np.ndarray) -> Any:
        room = cp.empty(a.size + by, dtype)
        room[by:] = cp.asarray(a)
        return room[by:]
    on_w, on_g, on_h = placed(w), placed(g), [placed(h) for h in histories]
    options = {} if copy is None else {"copy": copy}
    cuda.update_plan(rule, list(SEGMENTS)).run(on_w, on_g, on_h, hyper, factor, **options)
    want_w, want_g, want_h, want_copy = double(w), double(g), [double(h) for h in histories], np.zeros(N_ELEMS)
    for s in SEGMENTS:
        at = slice(s.start, s.stop)
        pull = np.sign(want_w[at]) if hyper.l1 else want_w[at]
        decayed = hyper.scale * times * want_g[at] + hyper.decay * s.decay_mult * pull
        step, new = expected(name, decayed, [h[at] for h in want_h], hyper.rate * s.lr_mult)
        want_w[at] -= step
        want_copy[at] = want_w[at]
        if hyper.keeps_step:
            want_g[at] = step
        for h, n in zip(want_h, new, strict=True):
            h[at] = n
    for got, want in zip((on_w, on_g, *on_h), (want_w, want_g, *want_h), strict=True):
        close(got, want, dtype, 8)
    if copy is not None:
        close(copy, want_copy, np.dtype(copy.dtype))


RULES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "LocalUpdate")


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=lambda d: d.name)
@pytest.mark.parametrize("name", RULES)
def test_rules(cp: Any, name: str, dtype: np.dtype) -> None:
    for hyper in (Hyper(), Hyper(l1=True, keeps_step=True)):
        check(cp, name, dtype, hyper)


def test_buffers_may_lie_anywhere(cp: Any) -> None:
    check(cp, "Adam", np.dtype(np.float32), Hyper(), by=1)


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_a_half_copy_of_the_weights_is_written_with_them(cp: Any, half: Any) -> None:
    check(cp, "SGD", np.dtype(np.float32), Hyper(), copy=cp.zeros(N_ELEMS, half))


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_a_half_copy_has_convolutions_weights_in_the_kernels_order(cp: Any, half: Any, by: int) -> None:
    shape, start = (31, 5, 3, 3), 16  # more than a chunk's elements would be two of them
    n_elems, n_in, n_places = 31 * 5 * 9, 5, 9
    w, g = (numbers(start + 10 * n_elems, np.dtype(np.float32), seed) for seed in (0, 1))
    segments = [Segment(0, 7), Segment(start, start + n_elems, 1.0, 1.0, start, (n_in, n_places)),
                Segment(start + n_elems + 3, start + 10 * n_elems, 1.0, 1.0, start + n_elems, (3, 9 * 31 * 5))]
    placed = [cp.zeros(w.size + by, np.float32)[by:] for _ in range(3)]
    placed[0][...], placed[1][...] = cp.asarray(w), cp.asarray(g)
    copy = cp.zeros(w.size, half)
    cuda.update_plan(rule_of("SGD"), segments).run(*placed[:2], [placed[2]], Hyper(), copy=copy)
    new = placed[0].get()
    got = copy.get()
    want = np.moveaxis(new[start:start + n_elems].reshape(shape), 1, -1).reshape(-1)
    np.testing.assert_array_equal(double(got[start:start + n_elems]), double(want.astype(half)))
    np.testing.assert_array_equal(double(got[:7]), double(new[:7].astype(half)))
    rest = slice(start + n_elems, start + 10 * n_elems)
    want = np.moveaxis(new[rest].reshape(-1, 3, 9 * 31 * 5), 1, -1).reshape(-1).astype(half)
    left_out = np.moveaxis(np.arange(9 * n_elems).reshape(-1, 3, 9 * 31 * 5), 1, -1).reshape(-1) < 3
    np.testing.assert_array_equal(double(got[rest]), np.where(left_out, 0, double(want)))


def test_a_factor_on_the_device(cp: Any) -> None:
    check(cp, "SGD", np.dtype(np.float32), Hyper(), cp.asarray(np.array([0.25, 0], np.float32)), 0.25)
    w = cp.ones(N_ELEMS, np.float32)
    cuda.update_plan(rule_of("SGD"), list(SEGMENTS)).run(
        w, w.copy(), [w.copy()], Hyper(), cp.asarray(np.array([1, 1], np.float32)))
    np.testing.assert_array_equal(w.get(), 1)  # an update that is to be left out


@pytest.mark.parametrize("limit", [0.5, 1000.0])
def test_the_norm_is_clipped_without_the_host(cp: Any, limit: float) -> None:
    g = numbers(5000, np.dtype(np.float32), 0)
    mean = 0.25
    norm = float(np.linalg.norm(double(g))) * mean
    found = cuda.clip_factor(cp.asarray(g), limit, mean).get()
    assert found[0] == pytest.approx(limit / norm if norm > limit else 1, rel=1e-5)
    assert found[1] == 0


def test_a_rule_without_a_kernel_is_named(cp: Any) -> None:
    with pytest.raises(LayerError, match="LARS has no GPU kernel; known: SGD, "):
        cuda.update_plan(rule_of("LARS"), [])
