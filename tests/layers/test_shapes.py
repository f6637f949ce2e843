"""Layers that move, pick or reduce elements, by value in both storage orders, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.reshaping.concat_slice import cut_points
from scaffe.layers.reshaping.reshape import reshaped
from tests.layers.rig import Rig, spread
from tests.reference import shapes as reference

IMAGE = spread((2, 3, 4, 2))


def run(text: str, *inputs: np.ndarray, n_tops: int | None = None) -> np.ndarray:
    """The first top."""
    return Rig(text, list(inputs), n_tops).forward()[0]


@pytest.mark.parametrize(("options", "shape"), [
    ("shape { dim: 0 dim: -1 }", (2, 24)), ("shape { dim: 2 dim: 2 dim: -1 dim: 3 }", (2, 2, 4, 3)),
    ("shape { dim: -1 }", (48,)), ("shape { dim: 0 dim: 0 dim: -1 }", (2, 3, 8)),
    ("shape { dim: 0 dim: 0 dim: 2 dim: 4 }", (2, 3, 2, 4)), ("shape { dim: 12 } axis: 1 num_axes: 2", (2, 12, 2)),
    ("shape { dim: 1 } axis: 1 num_axes: 0", (2, 1, 3, 4, 2)), ("shape { dim: 2 dim: 1 } axis: -2", (2, 3, 4, 2, 1)),
    ("shape { dim: 4 dim: 2 } axis: -3 num_axes: 2", (2, 3, 4, 2)),
])
def test_reshape_keeps_caffes_order(options: str, shape: tuple[int, ...]) -> None:
    got = run(f'type: "Reshape" reshape_param {{ {options} }}', IMAGE)
    np.testing.assert_array_equal(got, IMAGE.reshape(shape))


@pytest.mark.parametrize(("dims", "axis", "num_axes"), [((-1, -1), 0, -1), ((5, -1), 0, -1), ((3, 3), 0, -1),
                                                        ((1,), 5, 0), ((1,), 0, 7), ((0,) * 5, 0, -1), ((1,), -6, 0),
                                                        ((1,), 0, -2)])
def test_reshape_errors(dims: tuple[int, ...], axis: int, num_axes: int) -> None:
    shape = " ".join(f"dim: {d}" for d in dims)
    with pytest.raises(LayerError):
        Rig(f'type: "Reshape" reshape_param {{ shape {{ {shape} }} axis: {axis} num_axes: {num_axes} }}', [IMAGE])


def test_reshape_shares_memory_where_it_can() -> None:
    assert reshaped((2, 3), (0, -1, 1, 1)) == (2, 3, 1, 1)
    for x, shape in ((spread((2, 6)), "dim: 0 dim: 6 dim: 1 dim: 1"), (spread((2, 3, 2, 2)), "dim: 0 dim: 0 dim: 4"),
                     (spread((2, 3, 2, 2)), "dim: 0 dim: 0 dim: 4 dim: 1")):
        rig = Rig(f'type: "Reshape" reshape_param {{ shape {{ {shape} }} }}', [x])
        rig.forward()
        assert np.shares_memory(rig.bottom[0].data, rig.top[0].data) == (shape.count("dim") != 3)


@pytest.mark.parametrize(("options", "axis", "cuts"), [("", 1, [1, 2]), ("slice_point: 1", 1, [1]),
                                                       ("axis: 2 slice_point: 1 slice_point: 3", 2, [1, 3]),
                                                       ("axis: -2", 2, [2]), ("slice_dim: 3", 3, [1]),
                                                       ("axis: 0 slice_point: 1", 0, [1])])
def test_slice(options: str, axis: int, cuts: list[int]) -> None:
    rig = Rig(f'type: "Slice" slice_param {{ {options} }}', [IMAGE], n_tops=len(cuts) + 1)
    for got, expected in zip(rig.forward(), np.split(IMAGE, cuts, axis), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("points", [[3, 2], [4], [0, 1], [1, 1], [1]])
def test_slice_points_that_cannot_be(points: list[int]) -> None:
    with pytest.raises(LayerError):
        cut_points(4, 3, points)


def test_slice_errors() -> None:
    with pytest.raises(LayerError, match="evenly"):
        Rig('type: "Slice"', [IMAGE], n_tops=2)
    with pytest.raises(LayerError, match="not both"):
        Rig('type: "Slice" slice_param { axis: 1 slice_dim: 1 }', [IMAGE], n_tops=3)
    with pytest.raises(LayerError, match="out of range"):
        Rig('type: "Slice" slice_param { axis: 4 }', [IMAGE], n_tops=1)


@pytest.mark.parametrize("axis", [0, 1, 3, -2])
@pytest.mark.parametrize("operation", ["SUM", "ASUM", "SUMSQ", "MEAN"])
def test_reduction(axis: int, operation: str) -> None:
    got = run(f'type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} coeff: 0.5 }}', IMAGE)
    np.testing.assert_allclose(got, reference.reduction(IMAGE, axis, operation, 0.5), atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_tile(axis: int) -> None:
    got = run(f'type: "Tile" tile_param {{ axis: {axis} tiles: 3 }}', IMAGE)
    np.testing.assert_array_equal(got, reference.tile(IMAGE, axis, 3))


def test_tile_wants_tiles() -> None:
    with pytest.raises(LayerError, match="tiles"):
        Rig('type: "Tile"', [IMAGE])


@pytest.mark.parametrize(("options", "shape", "offsets"), [("", (2, 3, 2, 1), (0, 0, 0, 0)),
                                                           ("offset: 1", (9, 9, 3, 1), (0, 0, 1, 1)),
                                                           ("axis: 1 offset: 1 offset: 2 offset: 0", (7, 2, 1, 2),
                                                            (0, 1, 2, 0)), ("axis: -1 offset: 1", (1, 1, 1, 1),
                                                                            (0, 0, 0, 1))])
def test_crop(options: str, shape: tuple[int, ...], offsets: tuple[int, ...]) -> None:
    rig = Rig(f'type: "Crop" crop_param {{ {options} }}', [IMAGE, np.zeros(shape)])
    got = rig.forward()[0]
    np.testing.assert_array_equal(got, reference.crop(IMAGE, got.shape, offsets))


@pytest.mark.parametrize(("options", "shape"), [("", (2, 3, 5, 1)), ("offset: 2", (2, 3, 3, 1)),
                                                ("offset: 0 offset: 0 offset: 0", (2, 3, 1, 1)), ("", (2, 3)),
                                                ("axis: 4", (2, 3, 1, 1))])
def test_crop_that_does_not_fit(options: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError):
        Rig(f'type: "Crop" crop_param {{ {options} }}', [IMAGE, np.zeros(shape)])


@pytest.mark.parametrize(("options", "kernel", "stride", "pad", "dilation"), [
    ("kernel_size: 2", (2, 2), (1, 1), (0, 0), (1, 1)),
    ("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 2 pad_w: 1", (3, 2), (2, 1), (2, 1), (1, 1)),
    ("kernel_size: 2 kernel_size: 1 dilation: 3 stride: 2 pad: 1", (2, 1), (2, 2), (1, 1), (3, 3)),
])
def test_im2col(options: str, kernel: tuple, stride: tuple, pad: tuple, dilation: tuple) -> None:
    got = run(f'type: "Im2col" convolution_param {{ {options} }}', IMAGE)
    np.testing.assert_array_equal(got, reference.im2col(IMAGE, kernel, stride, pad, dilation))


def test_im2col_of_volumes_and_lines() -> None:
    volume, line = spread((1, 2, 3, 3, 2)), spread((2, 3, 5))
    np.testing.assert_array_equal(run('type: "Im2col" convolution_param { kernel_size: 2 pad: 1 }', volume),
                                  reference.im2col(volume, (2,) * 3, (1,) * 3, (1,) * 3, (1,) * 3))
    np.testing.assert_array_equal(run('type: "Im2col" convolution_param { kernel_size: 3 stride: 2 }', line),
                                  reference.im2col(line, (3,), (2,), (0,), (1,)))


@pytest.mark.parametrize("options", ["", "kernel_size: 0", "kernel_size: 9", "kernel_size: 2 kernel_h: 2",
                                     "kernel_size: 1 stride: 0", "kernel_size: 1 pad: 1 pad: 1 pad: 1",
                                     "kernel_size: 1 axis: 3"])
def test_im2col_errors(options: str) -> None:
    with pytest.raises(LayerError):
        Rig(f'type: "Im2col" convolution_param {{ {options} }}', [IMAGE])


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_mvn(across: bool, scale: bool) -> None:
    options = f"across_channels: {str(across).lower()} normalize_variance: {str(scale).lower()} eps: 0.25"
    got = run(f'type: "MVN" mvn_param {{ {options} }}', IMAGE)
    np.testing.assert_allclose(got, reference.mvn(IMAGE, across, scale, 0.25), atol=1e-12)


def test_mvn_shapes() -> None:
    assert run('type: "MVN"', spread((2, 3))).shape == (2, 3, 1, 1)
    with pytest.raises(LayerError, match="4 axes"):
        Rig('type: "MVN"', [spread((1, 1, 1, 1, 2))])


@pytest.mark.parametrize("size", [(4, 4), (7, 6), (9, 12)])
@pytest.mark.parametrize("method", ["MAX", "AVE"])
def test_spp(size: tuple[int, int], method: str) -> None:
    x = spread((2, 3, *size))
    got = run(f'type: "SPP" spp_param {{ pyramid_height: 3 pool: {method} }}', x)
    np.testing.assert_allclose(got, reference.spp(x, 3, method), atol=1e-12)


def test_spp_of_one_level_is_an_image_and_errors() -> None:
    assert run('type: "SPP" spp_param { pyramid_height: 1 }', IMAGE).shape == (2, 3, 1, 1)
    for text, x in (("", IMAGE), ("pyramid_height: 2", IMAGE[0])):
        with pytest.raises(LayerError, match="pyramid_height"):
            Rig(f'type: "SPP" spp_param {{ {text} }}', [x])
    with pytest.raises(LayerError, match="pad"):
        Rig('type: "SPP" spp_param { pyramid_height: 3 }', [spread((1, 1, 5, 5))])


# -- shapes that Caffe takes, without axes, elements, channels or items ------------------------------------------
@pytest.mark.parametrize(("prototxt", "bottoms", "shape"), [
    ('type: "Dropout"', [()], ()), ('type: "LRN"', [(2, 0, 4, 5)], (2, 0, 4, 5)),
    ('type: "SoftmaxWithLoss"', [(0, 3), (0,)], ()), ('type: "SoftmaxWithLoss"', [(2, 3, 0, 5), (2, 0, 5)], ()),
    ('type: "LocalConvolution" local_convolution_param { num_output: 4 kernel_size: 3 }', [(0, 3, 5, 5)], (0, 4, 3, 3)),
    ('type: "Interp"', [(1, 2, 3, 3), (7, 6, 5)], (1, 2, 5, 1)), ('type: "Interp"', [(1, 2, 3, 3), ()], (1, 2, 1, 1)),
])
def test_taken(prototxt, bottoms, shape):
    rig = Rig(prototxt, [np.zeros(bottom) for bottom in bottoms])
    assert rig.forward()[0].shape == shape
    rig.backward([np.ones(shape)], [True] + [False] * (len(bottoms) - 1))


def test_losses_of_numbers_in_a_row():
    """SmoothL1LossOHEM sees (N,) as (N, 1, 1, 1)."""
    a, b = np.array([0.5, 3.0, -2.0]), np.array([0.0, 1.0, 0.0])
    loss, each = Rig('type: "SmoothL1LossOHEM"', [a, b], n_tops=2).forward()
    np.testing.assert_allclose(each, np.array([0.125, 1.5, 1.5]).reshape(3, 1, 1, 1))
    assert loss == pytest.approx(each.sum() / 3)
