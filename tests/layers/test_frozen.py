"""Layers of weights and a bias of which only one learns, or only one was cleared."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.rig import Rig, spread

FILLED = 'weight_filler { type: "uniform" } bias_filler { type: "uniform" }'
TEXTS = {
    "Convolution": f'type: "Convolution" convolution_param {{ num_output: 4 kernel_size: 2 {FILLED} }}',
    "Deconvolution": f'type: "Deconvolution" convolution_param {{ num_output: 4 kernel_size: 2 {FILLED} }}',
    "InnerProduct": f'type: "InnerProduct" inner_product_param {{ num_output: 4 {FILLED} }}',
}
every = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
both = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def make(text: str, dtype: type) -> tuple[Rig, list[np.ndarray], list[np.ndarray]]:
    """A rig, a gradient of its top, and the gradients of its parameters."""
    rig = Rig(text, [spread((2, 3, 4, 3))], dtype=dtype)
    diffs = [spread(rig.top[0].shape, seed=4)]
    return rig, diffs, rig.backward(diffs)[1]


@every
@both
@pytest.mark.parametrize("learns", [[True, False], [False, True]])
def test_only_what_learns_gets_a_gradient(text: str, dtype: type, learns: list[bool]) -> None:
    rig, diffs, whole = make(text, dtype)
    rig.layer.param_propagate_down = learns
    _, got = rig.backward(diffs)
    for mine, expected, wanted in zip(got, whole, learns, strict=True):
        np.testing.assert_allclose(mine, expected if wanted else 0 * expected, rtol=1e-4, atol=1e-5)


@every
@both
@pytest.mark.parametrize("cleared", [0, 1])
def test_a_blob_that_was_not_cleared_is_added_to(text: str, dtype: type, cleared: int) -> None:
    rig, _, whole = make(text, dtype)
    rig.layer.blobs[cleared].clear_diff()
    rig.layer.backward(rig.top, [True], rig.bottom)
    for i, (blob, once) in enumerate(zip(rig.layer.blobs, whole, strict=True)):
        np.testing.assert_allclose(blob.diff, once if i == cleared else 2 * once, rtol=1e-4, atol=1e-5)
