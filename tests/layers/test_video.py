"""C3D's layers by value; its nets are in tests/scaffe/nets/test_fork_nets.py."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread
from tests.reference import video as reference

X = spread((2, 3, 5, 7, 6))
FILL = 'weight_filler { type: "uniform" min: -1 } bias_filler { type: "uniform" }'


@pytest.mark.parametrize(("options", "kernel", "stride", "pad"), [
    ("kernel_size: 3 kernel_depth: 3 pad: 1 temporal_pad: 1", (3, 3, 3), (1, 1, 1), (1, 1, 1)),
    ("kernel_size: 2 kernel_depth: 1 stride: 2", (1, 2, 2), (1, 2, 2), (0, 0, 0)),
    ("kernel_size: 1 kernel_depth: 2 temporal_stride: 3 temporal_pad: 2 filter_group: 2", (2, 1, 1), (3, 1, 1),
     (2, 0, 0))])
def test_convolution3d(options: str, kernel: tuple[int, ...], stride: tuple, pad: tuple) -> None:
    rig = Rig(f'type: "Convolution3D" convolution3d_param {{ num_output: 4 {options} {FILL} }}', [X])
    weights, bias = (blob.data for blob in rig.layer.blobs)
    assert weights.shape == (4, 3, *kernel) and bias.shape == (1, 1, 1, 1, 4)
    np.testing.assert_allclose(rig.forward()[0], reference.convolution3d(X, weights, bias.ravel(), stride, pad))


@pytest.mark.parametrize(("options", "is_max", "kernel", "stride", "pad"), [
    ("kernel_size: 2 kernel_depth: 1 stride: 2", True, (1, 2, 2), (1, 2, 2), (0, 0, 0)),
    ("kernel_size: 3 kernel_depth: 2 stride: 2 temporal_stride: 2", True, (2, 3, 3), (2, 2, 2), (0, 0, 0)),
    ("pool: AVE kernel_size: 3 kernel_depth: 2 stride: 2 temporal_stride: 2 pad: 1", False, (2, 3, 3), (2, 2, 2),
     (0, 1, 1)),
    ("pool: AVE kernel_size: 4 kernel_depth: 3 stride: 3 pad: 2", False, (3, 4, 4), (1, 3, 3), (0, 2, 2))])
def test_pooling3d(options: str, is_max: bool, kernel: tuple, stride: tuple, pad: tuple) -> None:
    got = Rig(f'type: "Pooling3D" pooling3d_param {{ {options} }}', [X]).forward()[0]
    np.testing.assert_allclose(got, reference.pooling3d(X, is_max, kernel, stride, pad))


def test_nd_convolution_and_pooling() -> None:
    shapes = "kernel_shape { dim: 3 dim: 2 dim: 1 } stride_shape { dim: 1 dim: 2 dim: 3 }"
    rig = Rig(f'type: "NdConvolution" convolution_param {{ num_output: 4 {shapes} pad_shape {{ dim: 1 dim: 0 dim: 0 }} '
              f"{FILL} }}", [X])
    weights, bias = (blob.data for blob in rig.layer.blobs)
    assert bias.shape == (4,)
    np.testing.assert_allclose(rig.forward()[0], reference.convolution3d(X, weights, bias, (1, 2, 3), (1, 0, 0)))
    for pool in ("MAX", "AVE"):
        got = Rig(f'type: "NdPooling" pooling_param {{ pool: {pool} {shapes} }}', [X[..., :4]]).forward()[0]
        expected = reference.pooling3d(X[..., :4], pool == "MAX", (3, 2, 1), (1, 2, 3), (0, 0, 0))
        np.testing.assert_allclose(got[..., : expected.shape[3], :], expected)
        whole = Rig(f'type: "NdPooling" pooling_param {{ pool: {pool} {shapes[:shapes.index("stride")]} '
                    "global_pooling: true }", [X]).forward()[0]
        np.testing.assert_allclose(whole[..., 0, 0, 0], X.max((2, 3, 4)) if pool == "MAX" else X.mean((2, 3, 4)))


@pytest.mark.parametrize("is_max", [True, False])
@pytest.mark.parametrize(("options", "kernel", "stride", "pad"), [
    ("kernel_size: 2 stride: 2", 2, 2, 0), ("kernel_size: 3 stride: 2 pad: 1", 3, 2, 1), ("kernel_size: 3", 3, 1, 0)])
def test_pooling_over_five_axes(is_max: bool, options: str, kernel: int, stride: int, pad: int) -> None:
    x = np.abs(X)  # so that padding with zeros is as good as leaving it out
    text = f'type: "Pooling" pooling_param {{ pool: {"MAX" if is_max else "AVE"} {options} }}'
    got = Rig(text, [x]).forward()[0]
    expected = reference.pooling3d(x, is_max, *[(n,) * 3 for n in (kernel, stride, pad)])
    np.testing.assert_allclose(got, expected[(..., *map(slice, got.shape[2:]))])
    assert got.shape[2:] == tuple(-((kernel - n - 2 * pad) // stride) + 1 for n in x.shape[2:])
    floor = Rig(text.replace("}", "round_mode: FLOOR }"), [x]).forward()[0]
    whole = [slice((n + 2 * pad - kernel) // stride + 1) for n in x.shape[2:]]
    np.testing.assert_array_equal(floor, got[(..., *whole)])


def test_a_last_window_in_the_padding_is_left_out() -> None:
    text = 'type: "NdPooling" pooling_param { kernel_shape { dim: 2 } stride_shape { dim: 2 } pad_shape { dim: 1 } }'
    np.testing.assert_array_equal(Rig(text, [np.arange(1.0, 4).reshape(1, 1, 3)]).forward()[0], [[[1, 3]]])


def test_the_gradient_of_max_pooling_goes_to_all_that_are_largest() -> None:
    text = 'type: "Pooling3D" pooling3d_param { kernel_size: 2 kernel_depth: 2 stride: 2 }'
    rig = Rig(text, [np.ones((1, 1, 2, 2, 2))])
    np.testing.assert_array_equal(rig.backward([np.full((1, 1, 1, 1, 1), 3.0)])[0][0], np.full((1, 1, 2, 2, 2), 3))
    some = np.arange(8.0).reshape(1, 1, 2, 2, 2) // 6
    np.testing.assert_array_equal(Rig(text, [some]).backward([np.ones((1, 1, 1, 1, 1))])[0][0], some)


@pytest.mark.parametrize(("text", "shape", "said"), [
    ("Pooling3D\" pooling3d_param { kernel_size: 2 kernel_depth: 2 pool: STOCHASTIC }", X.shape, "STOCHASTIC"),
    ("Pooling3D\" pooling3d_param { kernel_size: 2 kernel_depth: 2 pad: 1 }", X.shape, "only AVE"),
    ("Pooling3D\" pooling3d_param { kernel_size: 2 }", X.shape, "kernel_depth"),
    ("Pooling3D\" pooling3d_param { kernel_size: 8 kernel_depth: 1 }", X.shape, "do not fit"),
    ("Pooling3D\" pooling3d_param { kernel_size: 1 kernel_depth: 1 temporal_stride: 6 }", (1, 1, 2, 1, 1), "not fit"),
    ("Pooling3D\" pooling3d_param { kernel_size: 1 kernel_depth: 1 }", (1, 2, 3, 4), "clips"),
    ("Convolution3D\" convolution3d_param { num_output: 2 kernel_size: 1 kernel_depth: 1 }", (1, 2, 3, 4), "clips"),
    ("Convolution3D\" convolution3d_param { num_output: 3 kernel_size: 1 kernel_depth: 1 filter_group: 2 }", X.shape,
     "filter_group"),
    ("Convolution3D\" convolution3d_param { num_output: 3 kernel_size: 1 kernel_depth: 1 group: 3 }", X.shape, "group"),
    ("Convolution\" convolution_param { num_output: 3 kernel_size: 1 kernel_depth: 1 }", X.shape, "Convolution3D"),
    ("Pooling\" pooling_param { kernel_size: 1 kernel_depth: 1 }", (1, 2, 3, 4), "Pooling3D"),
    ("Pooling\" pooling_param { kernel_h: 2 kernel_w: 2 }", X.shape, "kernel_h"),
    ("Pooling\" pooling_param { stride: 2 }", X.shape, "kernel_size"),
    ("Pooling\" pooling_param { kernel_size: 2 pool: STOCHASTIC }", X.shape, "STOCHASTIC"),
    ("NdPooling\" pooling_param { kernel_size: 1 }", X.shape, "kernel_shape"),
    ("NdConvolution\" convolution_param { num_output: 3 kernel_shape { dim: 1 dim: 1 } }", X.shape, "3 numbers")])
def test_what_cannot_be(text: str, shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(f'type: "{text}', [np.zeros(shape)])
