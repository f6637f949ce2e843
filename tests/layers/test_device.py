"""Every layer and option on a device against the CPU, forward and backward: on the pretend CuPy, or on a card."""

from __future__ import annotations

import importlib
import os

import numpy as np
import pytest

from scaffe.layers.kernels import cpu, device
from tests import pretend
from tests.layers.gradient_check import Case, all_cases, load_cases
from tests.layers.rig import Rig

CASES, NO_GRADIENT = load_cases()
DRAWING = ("Dropout", "STOCHASTIC", "Insanity")  # layers that draw have draws of their own on a device
CLOSE = {np.float32: {"rtol": 3e-5, "atol": 3e-5}, np.float64: {"rtol": 1e-9, "atol": 1e-10}}
REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
pytestmark = pytest.mark.skipif(REAL and device.missing() != "", reason=device.missing() or "-") if REAL \
    else pretend.needs_compiler


@pytest.fixture
def kernels(monkeypatch):
    """The device's backend."""
    if not REAL:
        pretend.install(monkeypatch)
    return importlib.import_module("scaffe.layers.kernels.cuda")



EVERY = dict(all_cases(CASES))
COMPARED = {name: case for name, case in EVERY.items() if not any(word in name + case.prototxt for word in DRAWING)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", COMPARED.values(), ids=COMPARED.keys())
def test_the_device_agrees_with_the_cpu(case: Case, dtype: type, kernels) -> None:
    here, there = case.rig(dtype, cpu), case.rig(dtype, kernels)
    for mine, theirs in zip(here.layer.blobs, there.layer.blobs, strict=True):
        np.testing.assert_array_equal(there.copies([theirs.data])[0], mine.data)
    for got, expected in zip(there.forward(), here.forward(), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, **CLOSE[dtype])
    if here.layer.param.type in NO_GRADIENT:
        return
    rng = np.random.default_rng(3)
    diffs = [rng.normal(size=blob.shape) for blob in here.top]
    if case.tops is not None:
        diffs = [d if i in case.tops else 0 * d for i, d in enumerate(diffs)]
    for got, expected in zip(there.backward(diffs, case.propagate_down()),
                             here.backward(diffs, case.propagate_down()), strict=True):
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, e, **CLOSE[dtype])


@pytest.mark.parametrize("text", [
    'type: "Pooling" pooling_param { kernel_size: 2 }', 'type: "Pooling" pooling_param { pool: AVE kernel_size: 2 }',
    'type: "LRN"', 'type: "SPP" spp_param { pyramid_height: 2 }', 'type: "Scale"', 'type: "Softmax"'])
def test_bottoms_without_channels(text: str, kernels) -> None:
    rig = Rig(text, [np.zeros((2, 0, 4, 5))], kernels=kernels)
    top = rig.forward()[0]
    assert top.size == 0
    assert rig.backward([np.zeros(top.shape)])[0][0].shape == (2, 0, 4, 5)


@pytest.mark.parametrize("case", [c for name, c in EVERY.items() if name.startswith(("ArgMax", "Interp"))])
def test_layers_of_numpys_functions_that_cupy_lacks_for_bfloat16(case: Case, kernels) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    here, there = case.rig(np.float32, cpu), case.rig(ml_dtypes.bfloat16, kernels)
    for got, expected in zip(there.forward(), here.forward(), strict=True):
        np.testing.assert_allclose(got.astype(np.float32), expected, rtol=0.02, atol=0.02)
