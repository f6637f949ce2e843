"""Loss scaling: the factor's life, and updates left out where gradients overflow (on the pretend device)."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.blob import Blob
from scaffe.nets.flat_params import FlatParams, Param
from scaffe.proto import caffe_pb2
from scaffe.training.loss_scale import LARGEST, PATIENCE, needs_scale
from scaffe.training.updater import Updater
from tests import pretend


@pytest.fixture
def cuda(monkeypatch):
    """The kernels, on the pretend device."""
    pretend.install(monkeypatch)
    from scaffe.layers.kernels import cuda

    return cuda


def next_scale(scale, n_clean, overflowed, patience, largest):
    """The rule as the class of the field states it: torch.amp.GradScaler's, with backoff 1/2 and growth 2."""
    if overflowed:
        return max(scale / 2, 1.0), 0
    if n_clean + 1 == patience:
        return min(scale * 2, largest), 0
    return scale, n_clean + 1


def given(cuda, guard, is_infinite):
    gradient = np.zeros(5, np.float32)
    gradient[3] = np.inf if is_infinite else 1
    return guard.look([cuda.to_device(gradient)])


@pretend.needs_compiler
@pytest.mark.parametrize("seed", range(3))
def test_the_factor_halves_at_an_overflow_and_doubles_after_patience(cuda, seed):
    rng, patience, largest = np.random.default_rng(seed), 5, 64.0
    guard, expected = cuda.Guard(16.0, 3), (16.0, 3)
    for overflowed in rng.random(150) < rng.choice((0.05, 0.2, 0.5), 150):
        given(cuda, guard, overflowed)
        guard.adapt(patience, largest)
        expected = next_scale(*expected, overflowed, patience, largest)
        assert guard.read() == expected
        assert float(guard.inverse) == 1 / expected[0]


@pretend.needs_compiler
def test_the_factor_stays_within_its_bounds(cuda):
    for scale, n_clean, overflowed, expected in ((1, 7, True, (1, 0)), (LARGEST, PATIENCE - 1, False, (LARGEST, 0)),
                                                 (4096, PATIENCE - 2, False, (4096, PATIENCE - 1))):
        guard = cuda.Guard(scale, n_clean)
        given(cuda, guard, overflowed)
        guard.adapt(PATIENCE, LARGEST)
        assert guard.read() == expected


def test_only_fp16_needs_it():
    assert [needs_scale(t) for t in (np.float16, np.float32)] == [True, False]


def updater_of(cuda, solver):
    blob = Blob((40,), zeros=cuda.zeros)
    params = FlatParams([Param(0, blob)], np.float32, cuda.zeros)
    return blob, Updater(text_format.Parse(solver, caffe_pb2.SolverParameter()), params, cuda)


@pretend.needs_compiler
def test_a_drop_by_four_halvings_costs_four_updates(cuda):
    blob, updater = updater_of(cuda, "momentum: 0")
    updater.guard, limit = cuda.Guard(2.0**12), 2.0**8  # no gradient may be multiplied by more
    n_skipped = 0
    for _ in range(10):
        before = cuda.to_host(blob.data).copy()
        scale = updater.guard.read()[0]
        host = np.full(40, scale if scale <= limit else np.inf, np.float32)
        updater.params.diff[:40] = cuda.to_device(host)
        updater.check([slice(0, updater.params.n_elems)])
        updater.update(0.1, 0)
        updater.guard.adapt(PATIENCE, LARGEST)
        n_skipped += bool((cuda.to_host(blob.data) == before).all())
    assert n_skipped == 4
    np.testing.assert_allclose(cuda.to_host(blob.data), -0.6, rtol=1e-6)


@pytest.mark.parametrize("squares", [False, True], ids=["its own norm", "the norm of all parts"])
@pytest.mark.parametrize("clip", [-1.0, 1.0])
@pretend.needs_compiler
def test_an_update_with_an_infinite_gradient_is_left_out(cuda, clip, squares):
    blob, updater = updater_of(cuda, f"momentum: 0.5 clip_gradients: {clip}")
    updater.guard = cuda.Guard(64.0)
    gradient = np.arange(40, dtype=np.float32) / 10
    factor = 1.0 if clip < 0 else 1 / np.linalg.norm(gradient)
    for infinite in (False, True, False):
        host = 64 * gradient
        host[7] = np.inf if infinite else host[7]
        updater.params.diff[:40] = cuda.to_device(host)
        updater.check([slice(0, updater.params.n_elems)])
        updater.update(0.1, 0, 1, float((host.astype(np.float64) ** 2).sum()) if squares else None)
    first, second = 0.1 * factor * gradient, 0.1 * factor * gradient * 1.5
    np.testing.assert_allclose(cuda.to_host(blob.data), -(first + second), rtol=1e-5)
