"""Convolution, inner product and pooling by value: portable kernels in float64, the platform's best in float32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.layers.rig import Rig, spread
from tests.reference import common as reference

FILLERS = 'weight_filler { type: "uniform" min: -1 } bias_filler { type: "uniform" }'
both = pytest.mark.parametrize("dtype", [np.float32, np.float64])
IMAGE = spread((2, 4, 5, 6))


def close(got: np.ndarray, expected: np.ndarray, dtype: type) -> None:
    """Equal to the element type's precision."""
    tolerance = 2e-5 if dtype == np.float32 else 1e-11
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def parameters(rig: Rig) -> tuple[np.ndarray, np.ndarray | None]:
    """Weights and bias."""
    blobs = [blob.data for blob in rig.layer.blobs]
    return blobs[0], blobs[1] if len(blobs) > 1 else None


WINDOWS = [
    ("num_output: 3 kernel_size: 3", (1, 1), (0, 0), (1, 1), 1),
    ("num_output: 4 kernel_size: 1", (1, 1), (0, 0), (1, 1), 1),
    ("num_output: 4 kernel_size: 3 stride: 2 pad: 1 group: 2", (2, 2), (1, 1), (1, 1), 2),
    ("num_output: 2 kernel_h: 3 kernel_w: 2 stride_h: 1 stride_w: 2 pad_h: 2 pad_w: 0", (1, 2), (2, 0), (1, 1), 1),
    ("num_output: 4 kernel_size: 2 dilation: 2 group: 4 bias_term: false", (1, 1), (0, 0), (2, 2), 4),
]


@both
@pytest.mark.parametrize(("options", "stride", "pad", "dilation", "group"), WINDOWS)
@pytest.mark.parametrize("layer_type", ["Convolution", "Deconvolution"])
def test_convolution(layer_type: str, options: str, stride: tuple, pad: tuple, dilation: tuple, group: int,
                     dtype: type) -> None:
    rig = Rig(f'type: "{layer_type}" convolution_param {{ {options} {FILLERS} }}', [IMAGE], dtype=dtype)
    naive = reference.convolution if layer_type == "Convolution" else reference.deconvolution
    close(rig.forward()[0], naive(IMAGE, *parameters(rig), stride, pad, dilation, group), dtype)


@both
@pytest.mark.parametrize("shape", [(2, 3, 6), (1, 2, 4, 3, 5)])
def test_convolution_of_lines_and_volumes(shape: tuple[int, ...], dtype: type) -> None:
    x, n = spread(shape), len(shape) - 2
    text = f'type: "Convolution" convolution_param {{ num_output: 2 kernel_size: 2 pad: 1 {FILLERS} }}'
    rig = Rig(text, [x], dtype=dtype)
    close(rig.forward()[0], reference.convolution(x, *parameters(rig), (1,) * n, (1,) * n, (1,) * n, 1), dtype)


@both
@pytest.mark.parametrize(("options", "axis"), [("", 1), ("axis: 2", 2), ("axis: -1 bias_term: false", 3),
                                               ("axis: 0", 0)])
def test_inner_product(options: str, axis: int, dtype: type) -> None:
    text = f'type: "InnerProduct" inner_product_param {{ num_output: 3 {options} {FILLERS} }}'
    rig = Rig(text, [IMAGE], dtype=dtype)
    close(rig.forward()[0], reference.inner_product(IMAGE, *parameters(rig), axis), dtype)


def test_inner_product_with_transposed_weights() -> None:
    text = f'type: "InnerProduct" inner_product_param {{ num_output: 3 transpose: true {FILLERS} }}'
    rig = Rig(text, [IMAGE])
    weights, bias = parameters(rig)
    assert weights.shape == (120, 3)
    close(rig.forward()[0], reference.inner_product(IMAGE, weights.T, bias, 1), np.float64)


POOLINGS = [
    ("kernel_size: 2 stride: 2", (2, 2), (2, 2), (0, 0), True),
    ("kernel_size: 3 stride: 2", (3, 3), (2, 2), (0, 0), True),
    ("kernel_size: 3 stride: 2 pad: 1", (3, 3), (2, 2), (1, 1), True),
    ("kernel_size: 2 stride: 2 pad: 1", (2, 2), (2, 2), (1, 1), True),
    ("kernel_size: 3 stride: 2 round_mode: FLOOR", (3, 3), (2, 2), (0, 0), False),
    ("kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 3 pad_h: 0 pad_w: 2", (2, 3), (1, 3), (0, 2), True),
    ("global_pooling: true", (5, 6), (1, 1), (0, 0), True),
]


@both
@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize(("options", "kernel", "stride", "pad", "up"), POOLINGS)
def test_pooling(options: str, kernel: tuple, stride: tuple, pad: tuple, up: bool, method: str, dtype: type) -> None:
    text = f'type: "Pooling" pooling_param {{ pool: {method} {options} }}'
    values, places = reference.pooling(IMAGE, method, kernel, stride, pad, up)
    close(Rig(text, [IMAGE], dtype=dtype).forward()[0], values, dtype)
    if method == "MAX":
        got, mask = Rig(text, [IMAGE], n_tops=2, dtype=dtype).forward()
        close(got, values, dtype)
        np.testing.assert_array_equal(mask, places)


def test_pooling_drops_a_window_that_starts_in_the_padding() -> None:
    rig = Rig('type: "Pooling" pooling_param { kernel_size: 2 stride: 2 pad: 1 }', [np.ones((1, 1, 3, 3))])
    assert rig.forward()[0].shape == (1, 1, 2, 2)


def test_average_pooling_counts_the_padding() -> None:
    rig = Rig('type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }', [np.ones((1, 1, 3, 3))])
    assert rig.forward()[0][0, 0, 0, 0] == pytest.approx(4 / 9)
