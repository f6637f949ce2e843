"""Loss scaling: the factor's life, and updates left out where gradients overflow (on the pretend device)."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.blob import Blob
from scaffe.nets.flat_params import FlatParams, Param
from scaffe.proto import caffe_pb2
from scaffe.training.loss_scale import LARGEST, PATIENCE, needs_scale, next_scale
from scaffe.training.updater import Updater
from tests import pretend


def test_the_factor_halves_at_an_overflow_and_doubles_after_patience():
    assert next_scale(4096, 500, True) == (2048, 0)
    assert next_scale(1, 0, True) == (1, 0)
    assert next_scale(4096, PATIENCE - 1, False) == (4096, PATIENCE - 1)
    assert next_scale(4096, PATIENCE, False) == (8192, 0)
    assert next_scale(LARGEST, PATIENCE, False) == (LARGEST, 0)


def test_only_fp16_needs_it():
    assert [needs_scale(t) for t in (np.float16, np.float32)] == [True, False]


@pytest.mark.parametrize("clip", [-1.0, 1.0])
@pretend.needs_compiler
def test_an_update_with_an_infinite_gradient_is_left_out(monkeypatch, clip):
    cupy = pretend.install(monkeypatch)
    from scaffe.layers.kernels import cuda

    blob = Blob((40,), zeros=cuda.zeros)
    params = FlatParams([Param(0, blob)], np.float32, cuda.zeros)
    updater = Updater(text_format.Parse(f"momentum: 0.5 clip_gradients: {clip}", caffe_pb2.SolverParameter()), params,
                      cuda)
    updater.guard()
    updater.gradient_scale = 1 / 64
    gradient = np.arange(40, dtype=np.float32) / 10
    factor = 1.0 if clip < 0 else 1 / np.linalg.norm(gradient)
    for infinite in (False, True, False):
        host = 64 * gradient
        host[7] = np.inf if infinite else host[7]
        params.diff[:40] = cupy.asarray(host)
        updater.check([slice(0, params.n_elems)])
        updater.update(0.1, 0)
    first, second = 0.1 * factor * gradient, 0.1 * factor * gradient * 1.5
    np.testing.assert_allclose(cupy.asnumpy(blob.data), -(first + second), rtol=1e-5)
    assert updater.take_overflows() == 1
    assert updater.take_overflows() == 0
