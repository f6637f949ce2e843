"""A layer with a ReLU fused to it gives what the two give one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.threads.parts import LEAST_ELEMS, set_parts
from scaffe.layers.kernels.specs import Fused, NormSpec
from tests.layers.rig import Rig, spread

IMAGE = (2, 5, 3, 4)
FILLED = 'filler { type: "gaussian" std: 1 }'
LAYERS = {
    "Scale": f'type: "Scale" scale_param {{ {FILLED} bias_term: true bias_filler {{ type: "constant" value: 0.3 }} }}',
    "Scale of an inner axis": f'type: "Scale" scale_param {{ axis: 2 num_axes: 1 {FILLED} }}',
    "Bias": f'type: "Bias" bias_param {{ {FILLED} }}',
    "Convolution": 'type: "Convolution" convolution_param { num_output: 4 kernel_size: 2 '
                   'weight_filler { type: "gaussian" std: 1 } }',
    "InnerProduct": 'type: "InnerProduct" inner_product_param { num_output: 4 '
                    'weight_filler { type: "gaussian" std: 1 } }',
}
PLACES = [(name, in_place) for name in LAYERS for in_place in (False, True) if not (in_place and name[0] in "CI")]


@pytest.mark.parametrize("slope", [0.0, 0.25])
@pytest.mark.parametrize(("name", "in_place"), PLACES)
def test_relu_in_the_same_pass(name: str, in_place: bool, slope: float) -> None:
    relu = Rig(f'type: "ReLU" relu_param {{ negative_slope: {slope} }}', [np.ones((1, 1))], in_place=True).layer
    rig = Rig(LAYERS[name], [spread(IMAGE)], in_place=in_place)
    y = rig.forward()[0]
    expected = np.where(y > 0, y, slope * y)
    gy = spread(y.shape, seed=1)
    gradients = rig.backward([np.where(y > 0, gy, slope * gy)], [True])
    assert rig.layer.fuse(relu)
    rig.load()
    rig.layer.forward_fused(rig.bottom, rig.top)
    np.testing.assert_allclose(rig.top[0].data, expected, rtol=1e-12, atol=1e-14)
    for blob in rig.layer.blobs:
        blob.clear_diff()
    rig.top[0].diff[...] = np.where(y > 0, gy, slope * gy)
    rig.layer.backward(rig.top, [True], rig.bottom)
    np.testing.assert_allclose(rig.bottom[0].diff, gradients[0][0], rtol=1e-12, atol=1e-14)
    for blob, wanted in zip(rig.layer.blobs, gradients[1], strict=True):
        np.testing.assert_allclose(blob.diff, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("slope", [0.0, 0.25])
@pytest.mark.parametrize("in_place", [False, True])
def test_relu_behind_a_sum_of_two(in_place: bool, slope: float) -> None:
    relu = Rig(f'type: "ReLU" relu_param {{ negative_slope: {slope} }}', [np.ones((1, 1))], in_place=True).layer
    a, b = spread(IMAGE), spread(IMAGE, seed=1)
    rig = Rig('type: "Eltwise" eltwise_param { operation: SUM }', [a, b], in_place=in_place)
    assert rig.layer.fuse(relu) and not rig.layer.fuse(relu)
    rig.load()
    rig.layer.forward_fused(rig.bottom, rig.top)
    np.testing.assert_allclose(rig.top[0].data, np.where(a + b > 0, a + b, slope * (a + b)), rtol=1e-12)


@pytest.mark.parametrize("what", ["operation: PROD", "operation: MAX", "coeff: 1 coeff: 2"])
def test_other_sums_take_no_relu_in(what: str) -> None:
    relu = Rig('type: "ReLU"', [np.ones((1, 1))], in_place=True).layer
    assert not Rig(f'type: "Eltwise" eltwise_param {{ {what} }}', [spread(IMAGE)] * 2).layer.fuse(relu)


@pytest.mark.parametrize("slope", [None, 0.0])
def test_batch_norm_on_two_threads_gives_the_bits_of_one(slope: float | None) -> None:
    """In place and not, forward and backward; rows enough for two threads."""
    rng, shape = np.random.default_rng(0), (2 * LEAST_ELEMS // 8 + 3, 8)
    x, gy = (rng.standard_normal(shape, np.float32) for _ in range(2))
    fused, found = Fused(np.full(8, 2, np.float32), None, slope), []
    for n_threads in (1, 2):
        set_parts(n_threads)
        plan, sums = cpu.batch_norm(NormSpec(shape, 1e-5, 0.9)), [np.ones(n, np.float32) for n in (8, 8, 1)]
        value, kept, gradient, y, gx, fixed = x.copy(), np.empty_like(x), gy.copy(), *(np.empty_like(x) for _ in "abc")
        plan.forward_train(value, value, sums, fused, kept)
        plan.backward(kept, gradient, gradient, fused)
        plan.forward_train(x, y, sums, fused)
        plan.backward(x, gy, gx, fused)
        plan.forward_fixed(x, fixed, sums, fused)
        np.testing.assert_array_equal(value, y)
        np.testing.assert_array_equal(gradient, gx)
        found.append((value, gradient, fixed))
    set_parts(1)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
