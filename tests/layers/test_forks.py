"""Layers of Caffe's forks by value, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread
from tests.reference import forks as reference

IMAGE = spread((2, 6, 4, 5))


def run(text: str, *inputs: np.ndarray) -> np.ndarray:
    """The top."""
    return Rig(text, list(inputs)).forward()[0]


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 2, 1, 0), (0, 1, 2, 3), (1,), ()])
def test_permute(order: tuple[int, ...]) -> None:
    full = order + tuple(a for a in range(4) if a not in order)
    text = " ".join(f"order: {a}" for a in order)
    np.testing.assert_array_equal(run(f'type: "Permute" permute_param {{ {text} }}', IMAGE), IMAGE.transpose(full))


@pytest.mark.parametrize("group", [1, 2, 3, 6])
def test_shuffle_channel(group: int) -> None:
    got = run(f'type: "ShuffleChannel" shuffle_channel_param {{ group: {group} }}', IMAGE)
    np.testing.assert_array_equal(got, reference.shuffle(IMAGE, group))


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_normalize(across: bool, shared: bool) -> None:
    options = f"across_spatial: {str(across).lower()} channel_shared: {str(shared).lower()} eps: 0.5"
    rig = Rig(f'type: "Normalize" norm_param {{ {options} scale_filler {{ type: "uniform" max: 20 }} }}', [IMAGE])
    scales = list(rig.layer.blobs[0].data.ravel())
    assert len(scales) == (1 if shared else 6)
    np.testing.assert_allclose(rig.forward()[0], reference.normalize(IMAGE, across, scales, 0.5))


def test_normalize_scales_are_1_without_a_filler() -> None:
    rig = Rig('type: "Normalize" norm_param { channel_shared: false }', [IMAGE])
    np.testing.assert_array_equal(rig.layer.blobs[0].data, np.ones(6))


@pytest.mark.parametrize(("options", "size", "crop"), [
    ("height: 7 width: 3", (7, 3), 0), ("zoom_factor: 3", (10, 13), 0), ("shrink_factor: 2", (2, 3), 0),
    ("shrink_factor: 3 zoom_factor: 2", (3, 3), 0), ("height: 1 width: 1", (1, 1), 0),
    ("height: 6 width: 8 pad_beg: -1", (6, 8), 1)])
def test_interp(options: str, size: tuple[int, int], crop: int) -> None:
    got = run(f'type: "Interp" interp_param {{ {options} }}', IMAGE)
    np.testing.assert_allclose(got, reference.interp(IMAGE[:, :, crop:, crop:], *size), atol=1e-12)


def test_interp_like_another_blob() -> None:
    got = run('type: "Interp"', IMAGE, np.zeros((1, 1, 3, 9)))
    np.testing.assert_allclose(got, reference.interp(IMAGE, 3, 9), atol=1e-12)


@pytest.mark.parametrize(("options", "size"), [("", (4, 4)), ("scale: 3", (6, 6)), ("scale_h: 2 scale_w: 4", (4, 8)),
                                               ("pad_out_h: true", (3, 4)), ("upsample_h: 5 upsample_w: 7", (5, 7))])
def test_upsample(options: str, size: tuple[int, int]) -> None:
    x, rng = spread((2, 3, 2, 2)), np.random.default_rng(3)
    mask = np.stack([rng.choice(size[0] * size[1], 4, replace=False) for _ in range(6)]).reshape(2, 3, 2, 2)
    got = run(f'type: "Upsample" upsample_param {{ {options} }}', x, mask)
    np.testing.assert_array_equal(got, reference.upsample(x, mask, *size))


@pytest.mark.parametrize(("options", "scale"), [("", (2, 2)), ("scale: 3", (3, 3)), ("scale_h: 2 scale_w: 4", (2, 4)),
                                                ("scale: 1", (1, 1)), ("upsample_h: 6 upsample_w: 2", (3, 1))])
def test_upsample_without_a_mask_is_the_nearest_neighbour(options: str, scale: tuple[int, int]) -> None:
    x = spread((2, 3, 2, 2))
    got = run(f'type: "Upsample" upsample_param {{ {options} }}', x)
    np.testing.assert_array_equal(got, np.kron(x, np.ones(scale)))


def test_roi_pooling() -> None:
    regions = np.array([[0, 0, 0, 9, 7], [1, 3, 2, 5, 8], [1, 4, 4, 4, 4], [0, 30, 0, 40, 3], [0, 9, 9, 2, 2],
                        [1, 1, 1, 4, 6.0]])
    got = run('type: "ROIPooling" roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }', IMAGE, regions)
    np.testing.assert_array_equal(got, reference.roi_pooling(IMAGE, regions, (3, 2), 0.5))


def test_axpy() -> None:
    a, x, y = spread((2, 6), seed=1), IMAGE, spread(IMAGE.shape, seed=2)
    np.testing.assert_allclose(run('type: "Axpy"', a, x, y), a[:, :, None, None] * x + y)
    np.testing.assert_allclose(run('type: "Axpy"', a.reshape(2, 6, 1, 1), x, y), a[:, :, None, None] * x + y)


def test_relu6() -> None:
    x = np.array([-2, -0.5, 0, 3, 6, 8.0])
    np.testing.assert_array_equal(run('type: "ReLU6"', x), [0, 0, 0, 3, 6, 6])
    np.testing.assert_allclose(run('type: "ReLU6" relu6_param { negative_slope: 0.5 }', x), [-1, -0.25, 0, 3, 6, 6])


@pytest.mark.parametrize("name", ["DepthwiseConvolution", "ConvolutionDepthwise"])
@pytest.mark.parametrize("outputs", ["", "num_output: 6", "num_output: 12 group: 1"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_depthwise(name: str, outputs: str, dtype: type) -> None:
    fillers = 'weight_filler { type: "uniform" } bias_filler { type: "uniform" }'
    text = f'type: "{name}" convolution_param {{ {outputs} kernel_size: 3 stride: 2 pad: 1 {fillers} }}'
    rig = Rig(text, [IMAGE], dtype=dtype)
    weights, bias = (blob.data for blob in rig.layer.blobs)
    assert weights.shape[1:] == (1, 3, 3)
    np.testing.assert_allclose(rig.forward()[0], reference.depthwise(IMAGE, weights, bias, 2, 1), rtol=1e-4)


SMALL = np.zeros((1, 2, 2, 2))


@pytest.mark.parametrize(("text", "inputs"), [
    ('type: "Permute" permute_param { order: 4 }', [IMAGE]),
    ('type: "Permute" permute_param { order: 1 order: 1 }', [IMAGE]),
    ('type: "ShuffleChannel" shuffle_channel_param { group: 4 }', [IMAGE]), ('type: "Normalize"', [np.zeros(3)]),
    ('type: "Interp"', [IMAGE]), ('type: "Interp" interp_param { zoom_factor: 0 }', [IMAGE]),
    ('type: "Interp" interp_param { zoom_factor: 1 pad_beg: -4 }', [IMAGE]),
    ('type: "Interp" interp_param { zoom_factor: 1 pad_beg: 1 }', [IMAGE]),
    ('type: "Upsample"', [IMAGE, IMAGE[:1]]), ('type: "Upsample" upsample_param { scale: 1 }', [SMALL, SMALL]),
    ('type: "Upsample" upsample_param { scale_h: 2 }', [SMALL, SMALL]),
    ('type: "Upsample" upsample_param { upsample_h: 5 upsample_w: 4 }', [SMALL]),
    ('type: "Upsample" upsample_param { scale: 3 pad_out_h: true }', [SMALL, SMALL]),
    ('type: "ROIPooling"', [IMAGE, np.zeros((1, 5))]),
    ('type: "ROIPooling" roi_pooling_param { pooled_h: 1 pooled_w: 1 }', [IMAGE, np.zeros((1, 4))]),
    ('type: "DepthwiseConvolution" convolution_param { num_output: 4 kernel_size: 1 }', [IMAGE]),
    ('type: "Axpy"', [np.zeros((2, 5)), IMAGE, IMAGE]), ('type: "Axpy"', [np.zeros((2, 6)), IMAGE, IMAGE[:1]])])
def test_what_cannot_be(text: str, inputs: list[np.ndarray]) -> None:
    with pytest.raises(LayerError):
        Rig(text, inputs)


@pytest.mark.parametrize("place", [-1, 16])
def test_upsample_outside_the_image(place: int) -> None:
    with pytest.raises(LayerError, match="outside"):
        run('type: "Upsample"', SMALL, SMALL + place)


def test_roi_of_an_item_that_is_not_there() -> None:
    with pytest.raises(LayerError, match="batch of 2"):
        run('type: "ROIPooling" roi_pooling_param { pooled_h: 1 pooled_w: 1 }', IMAGE, np.array([[2, 0, 0, 1, 1.0]]))
