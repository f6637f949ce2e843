"""The layers that nearly every net has, by value: portable kernels in float64, the platform's best in float32."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.base.layer import TEST
from tests.layers.rig import SEED, Rig, spread
from tests.reference import common as reference
from tests.reference.fillers import draws

both = pytest.mark.parametrize("dtype", [np.float32, np.float64])
IMAGE = spread((2, 4, 5, 6))


def close(got: np.ndarray, expected: np.ndarray, dtype: type) -> None:
    """Equal to the element type's precision."""
    tolerance = 2e-5 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@both
@pytest.mark.parametrize("slope", [0, 0.25])
def test_relu(slope: float, dtype: type) -> None:
    got = Rig(f'type: "ReLU" relu_param {{ negative_slope: {slope} }}', [IMAGE], dtype=dtype).forward()[0]
    close(got, np.where(IMAGE > 0, IMAGE, slope * IMAGE), dtype)


@both
@pytest.mark.parametrize(("size", "within"), [(3, False), (5, False), (3, True), (5, True)])
def test_lrn(size: int, within: bool, dtype: type) -> None:
    region = "norm_region: WITHIN_CHANNEL" if within else "k: 2"
    text = f'type: "LRN" lrn_param {{ local_size: {size} alpha: 0.5 beta: 0.75 {region} }}'
    got = Rig(text, [3 * IMAGE], dtype=dtype).forward()[0]
    close(got, reference.lrn(3 * IMAGE, size, 0.5, 0.75, 1 if within else 2, within), dtype)


@both
@pytest.mark.parametrize("axis", [0, 1, 3])
def test_softmax(axis: int, dtype: type) -> None:
    got = Rig(f'type: "Softmax" softmax_param {{ axis: {axis} }}', [9 * IMAGE], dtype=dtype).forward()[0]
    close(got, reference.softmax(9 * IMAGE, axis), dtype)


@both
@pytest.mark.parametrize("mode", ["FULL", "VALID", "BATCH_SIZE", "NONE"])
@pytest.mark.parametrize("axis", [1, 3])
def test_softmax_loss(axis: int, mode: str, dtype: type) -> None:
    shape = [n for a, n in enumerate(IMAGE.shape) if a != axis]
    labels = np.random.default_rng(2).integers(-1, IMAGE.shape[axis], shape)
    options = f"loss_param {{ ignore_label: -1 normalization: {mode} }} softmax_param {{ axis: {axis} }}"
    loss, prob = Rig(f'type: "SoftmaxWithLoss" {options}', [3 * IMAGE, labels], n_tops=2, dtype=dtype).forward()
    assert float(loss) == pytest.approx(reference.softmax_loss(3 * IMAGE, labels, axis, -1, mode), rel=1e-5)
    close(prob, reference.softmax(3 * IMAGE, axis), dtype)


@both
def test_a_saturated_wrong_answer_costs_87(dtype: type) -> None:
    rig = Rig('type: "SoftmaxWithLoss"', [np.array([[0, 1000.0]]), np.zeros(1)], dtype=dtype)
    assert float(rig.forward()[0]) == pytest.approx(87.33655, rel=1e-6)


@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 4, 5)])
@pytest.mark.parametrize("ratio", [0.5, 0.2, 0])
def test_dropout_keeps_what_caffe_keeps(shape: tuple[int, ...], ratio: float) -> None:
    x = spread(shape)
    text = f'type: "Dropout" dropout_param {{ dropout_ratio: {ratio} }}'
    kept = draws(SEED, x.size).reshape(shape) <= np.float32(1 - ratio) * np.float32(2**32 - 1)
    rig = Rig(text, [x])
    close(rig.forward()[0], np.where(kept, x / (1 - np.float32(ratio)), 0), np.float32)
    close(rig.backward([x])[0][0], np.where(kept, x / (1 - np.float32(ratio)), 0), np.float32)
    np.testing.assert_array_equal(Rig(text, [x], phase=TEST).forward()[0], x)
    sampled = Rig(text.replace("}", "sample_weights_test: true }"), [x], phase=TEST)  # SegNet's fork
    np.testing.assert_array_equal(sampled.forward()[0], rig.forward()[0])
    np.testing.assert_array_equal(sampled.backward([x])[0][0], rig.backward([x])[0][0])


def test_dropout_that_scales_in_testing() -> None:
    """Fast R-CNN's fork: y = x or 0 in training, x (1 - ratio) in testing."""
    x, text = spread((3, 7)), 'type: "Dropout" dropout_param { dropout_ratio: 0.2 scale_train: false }'
    kept = draws(SEED, x.size).reshape(x.shape) <= np.float32(0.8) * np.float32(2**32 - 1)
    close(Rig(text, [x]).forward()[0], np.where(kept, x, 0), np.float64)
    close(Rig(text, [x], phase=TEST).forward()[0], x * (1 - np.float32(0.2)), np.float32)


@pytest.mark.parametrize(("options", "shape"), [("", (2, 120)), ("axis: 2", (2, 4, 30)), ("axis: 0", (240,)),
                                                ("axis: 1 end_axis: 2", (2, 20, 6)),
                                                ("axis: -3 end_axis: -2", (2, 20, 6))])
def test_flatten(options: str, shape: tuple[int, ...]) -> None:
    got = Rig(f'type: "Flatten" flatten_param {{ {options} }}', [IMAGE]).forward()[0]
    np.testing.assert_array_equal(got, IMAGE.reshape(shape))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    parts = [spread(IMAGE.shape, seed=i) for i in range(3)]
    got = Rig(f'type: "Concat" concat_param {{ axis: {axis} }}', parts).forward()[0]
    np.testing.assert_array_equal(got, np.concatenate(parts, axis))


@both
@pytest.mark.parametrize(("options", "expected"), [
    ("", lambda a, b, c: a + b + c), ("operation: PROD", lambda a, b, c: a * b * c),
    ("operation: MAX", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    ("coeff: 2 coeff: -1 coeff: 0.5", lambda a, b, c: 2 * a - b + 0.5 * c)])
def test_eltwise(options: str, expected, dtype: type) -> None:
    parts = [spread(IMAGE.shape, seed=i) for i in range(3)]
    got = Rig(f'type: "Eltwise" eltwise_param {{ {options} }}', parts, dtype=dtype).forward()[0]
    close(got, expected(*parts), dtype)


@both
@pytest.mark.parametrize(("options", "shape"), [("", (4, 1, 1)), ("axis: 2", (5, 1)),
                                                ("axis: 1 num_axes: 2", (4, 5, 1)), ("axis: -1", (6,)),
                                                ("axis: 0 num_axes: -1", IMAGE.shape), ("num_axes: 0", ())])
def test_scale_and_bias(options: str, shape: tuple[int, ...], dtype: type) -> None:
    filler = 'filler { type: "uniform" min: -1 }'
    text = f'type: "Scale" scale_param {{ {options} {filler} bias_term: true bias_filler {{ type: "uniform" }} }}'
    scale = Rig(text, [IMAGE], dtype=dtype)
    factor, shift = (blob.data.reshape(shape) for blob in scale.layer.blobs)
    close(scale.forward()[0], IMAGE * factor + shift, dtype)
    bias = Rig(f'type: "Bias" bias_param {{ {options} {filler} }}', [IMAGE], dtype=dtype)
    close(bias.forward()[0], IMAGE + bias.layer.blobs[0].data.reshape(shape), dtype)


@both
def test_scale_by_a_second_bottom(dtype: type) -> None:
    factor = spread((4, 5), seed=3)
    got = Rig('type: "Scale"', [IMAGE, factor], dtype=dtype).forward()[0]
    close(got, IMAGE * factor[:, :, None], dtype)


@both
def test_batch_norm_and_its_running_statistics(dtype: type) -> None:
    rig = Rig('type: "BatchNorm" batch_norm_param { eps: 0.25 moving_average_fraction: 0.75 }', [IMAGE], dtype=dtype)
    expected, means, variances = reference.batch_norm(IMAGE, 0.25)
    close(rig.forward()[0], expected, dtype)
    rig.forward()
    m = IMAGE.size / 4
    mean, variance, factor = (blob.data for blob in rig.layer.blobs)
    close(mean, 1.75 * np.array(means), dtype)
    close(variance, 1.75 * np.array(variances) * m / (m - 1), dtype)
    close(factor, np.array([1.75]), dtype)


@both
def test_batch_norm_by_global_statistics(dtype: type) -> None:
    rig = Rig('type: "BatchNorm" batch_norm_param { eps: 0.25 }', [IMAGE], phase=TEST, dtype=dtype)
    mean, variance, factor = (blob.data for blob in rig.layer.blobs)
    mean[...], variance[...], factor[...] = [2, -1, 0, 1], [4, 1, 2, 8], 2
    shape = (4, 1, 1)
    expected = (IMAGE - mean.reshape(shape) / 2) / np.sqrt(variance.reshape(shape) / 2 + 0.25)
    close(rig.forward()[0], expected, dtype)


@both
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5), (2, 3, 4, 2, 3)])
def test_any_number_of_axes(shape: tuple[int, ...], dtype: type) -> None:
    """Channels are axis 1, however a blob of that many axes is stored."""
    x, per_channel = spread(shape), (-1,) + (1,) * (len(shape) - 2)
    close(Rig('type: "BatchNorm" batch_norm_param { eps: 0.25 }', [x], dtype=dtype).forward()[0],
          reference.batch_norm(x, 0.25)[0], dtype)
    scale = Rig('type: "Scale" scale_param { filler { type: "uniform" } bias_term: true }', [x], dtype=dtype)
    scale.layer.blobs[1].data[...] = np.arange(shape[1])
    factor, shift = (blob.data.reshape(per_channel) for blob in scale.layer.blobs)
    close(scale.forward()[0], x * factor + shift, dtype)
    bias = Rig('type: "Bias" bias_param { filler { type: "uniform" } }', [x], dtype=dtype)
    close(bias.forward()[0], x + bias.layer.blobs[0].data.reshape(per_channel), dtype)
    close(Rig('type: "Softmax"', [x], dtype=dtype).forward()[0], reference.softmax(x, 1), dtype)
    np.testing.assert_array_equal(Rig('type: "Concat"', [x, x]).forward()[0], np.concatenate([x, x], 1))
    labels = np.random.default_rng(1).integers(0, shape[1], (shape[0], *shape[2:]))
    loss = Rig('type: "SoftmaxWithLoss"', [x, labels], dtype=dtype).forward()[0]
    assert float(loss) == pytest.approx(reference.softmax_loss(x, labels, 1, None, "VALID"), rel=1e-5)


@pytest.mark.parametrize(("text", "inputs"), [
    ('type: "Convolution" convolution_param { num_output: 2 kernel_size: 7 }', [IMAGE]),
    ('type: "Convolution" convolution_param { num_output: 2 kernel_size: 1 group: 3 }', [IMAGE]),
    ('type: "Convolution" convolution_param { kernel_size: 1 }', [IMAGE]),
    ('type: "Convolution" convolution_param { num_output: 2 }', [IMAGE]),
    ('type: "InnerProduct"', [IMAGE]), ('type: "Pooling"', [IMAGE]),
    ('type: "Pooling" pooling_param { kernel_size: 2 pad: 2 }', [IMAGE]),
    ('type: "LRN" lrn_param { local_size: 4 }', [IMAGE]), ('type: "Softmax" softmax_param { axis: 4 }', [IMAGE]),
    ('type: "SoftmaxWithLoss"', [IMAGE, np.zeros(2)]), ('type: "Dropout" dropout_param { dropout_ratio: 1 }', [IMAGE]),
    ('type: "Concat"', [IMAGE, IMAGE[:1]]), ('type: "Eltwise"', [IMAGE, IMAGE[:1]]),
    ('type: "Eltwise" eltwise_param { coeff: 1 }', [IMAGE, IMAGE]), ('type: "Scale"', [IMAGE, np.zeros((3, 5))])])
def test_what_cannot_be(text: str, inputs: list[np.ndarray]) -> None:
    with pytest.raises(LayerError):
        Rig(text, inputs)


@pytest.mark.parametrize("n_tops", range(2, 8))
def test_split_sums_in_the_tops_order(n_tops):
    """To the bit: (((g0 + g1) + g2) + g3) + ..., in float32."""
    rig = Rig('type: "Split"', [IMAGE], n_tops=n_tops, dtype=np.float32)
    rig.forward()
    grads = [np.random.default_rng(seed).standard_normal(IMAGE.shape).astype(np.float32) for seed in range(n_tops)]
    total = grads[0]
    for grad in grads[1:]:
        total = total + grad
    np.testing.assert_array_equal(rig.backward(grads)[0][0], total)


def test_batch_norm_of_two_rows_keeps_what_cancels() -> None:
    """Two items of one number a channel: the gradient is eps / (variance + eps) of g, the rest of it cancels."""
    x, g = spread((2, 50), -3, 3).astype(np.float32), spread((2, 50), seed=1).astype(np.float32)
    rig = Rig('type: "BatchNorm"', [x], dtype=np.float32)
    got = rig.backward([g])[0][0]
    wide = x.astype(float)
    variance = wide.var(axis=0)
    expected = (g - g.astype(float).mean(axis=0)) * (1e-5 / (variance + 1e-5)) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
