"""DetectNetTransformation by value (NVIDIA/caffe)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.detectnet.transformation import Selection, change_boxes, change_image, rotated_size, select
from scaffe.proto import caffe_pb2
from tests.layers.rig import Rig, spread
from tests.reference.detectnet import planes

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
BOXES = [(3, 2, 7, 5, 1), (0, 0, 4, 4, 2), (-3, 6, 9, 9, 2), (10, 4, 30, 3.5, 1), (5, 5, 3, 3, 7), (40, 40, 5, 5, 1)]
CLASSES = {1: 0, 2: 2}


def labels(boxes: list[tuple], n_rows: int = 8) -> np.ndarray:
    out = np.zeros((1, 1, n_rows, 16))
    out[0, 0, 0, :2] = len(boxes), 16
    for row, (x, y, w, h, label) in zip(out[0, 0, 1:], boxes, strict=False):
        row[:6] = x, y, w, h, 0.5, label
    return out


def text(options: str, augmentation: str = "", transform: str = "") -> str:
    return ('type: "DetectNetTransformation" detectnet_groundtruth_param { stride: 4 image_size_x: 24 image_size_y: 16 '
            f"{options} }} detectnet_augmentation_param {{ {augmentation} }} transform_param {{ {transform} }}")


@pytest.mark.parametrize(("options", "least", "most", "crops", "norm"), [
    ("", None, 50, True, False), ("max_cvg_len: 3 obj_norm: true", None, 3, True, True),
    ("gridbox_type: GRIDBOX_MIN min_cvg_len: 5 crop_bboxes: false obj_norm: true", 5, None, False, True)])
def test_planes(options: str, least: float, most: float, crops: bool, norm: bool) -> None:
    """An image of the net's own size, so that boxes stay where they are."""
    classes = "object_class { src: 1 dst: 0 } object_class { src: 2 dst: 2 } scale_cvg: 0.5"
    rig = Rig(text(f"{options} {classes}"), [spread((1, 3, 16, 24), 0, 255), labels(BOXES)], phase=1)
    image, got = rig.forward()
    np.testing.assert_allclose(image, rig.inputs[0], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(got[0], planes(BOXES, 4, (24, 16), 0.5, least, most, crops, norm, CLASSES))


def test_in_testing_images_and_boxes_are_resized() -> None:
    x = spread((1, 3, 8, 12), 0, 255)
    means = "mean_value: 10 mean_value: 20 mean_value: 30"
    rig = Rig(text("", transform=means), [x, labels([(2, 1, 4, 3, 1)])], phase=1)
    image, got = rig.forward()
    expected = cv2.resize(np.moveaxis(x[0], 0, -1).astype(np.float32) - np.float32([10, 20, 30]), (24, 16),
                          interpolation=cv2.INTER_CUBIC)
    np.testing.assert_allclose(np.moveaxis(image[0], 0, -1), expected, atol=1e-3)
    np.testing.assert_allclose(got[0], planes([(4, 2, 8, 6, 1)], 4, (24, 16), 0.5, None, 50, True, False, {1: 0}))


def numbers(*values: float) -> Iterator[float]:
    yield from values
    raise AssertionError("more numbers were drawn")


def test_what_is_drawn_and_in_which_order() -> None:
    p = caffe_pb2.DetectNetAugmentationParameter(hue_rotation=30, desaturation_max=0.8, scale_min=0.5, scale_max=1.5,
                                                 max_rotate_degree=5, shift_x=3, shift_y=4)
    drawn = numbers(0.1, 0.75, 0.2, 0.5, 0.3, 0.0, 0.8, 0.9, 0.4, 0.25, 1.0)
    chosen = select((40, 30), (24, 16), p, drawn.__next__)
    assert chosen == Selection((52, 39), 15.0, pytest.approx(0.6), True, 0.0, (7, 25))
    assert next(numbers(0)) == 0
    drawn = numbers(0.9, 0.9, 0.9, 0.9, 0.9, 1.0)  # nothing but the crop, which is sure unless crop_prob says else
    p.crop_prob = 0.5
    assert select((40, 30), (24, 16), p, drawn.__next__) == Selection((40, 30), crop=(8, 7))


def test_a_flip_and_a_crop_beyond_the_image() -> None:
    image = spread((5, 6, 3), 0, 255).astype(np.float32)
    chosen = Selection((6, 5), flip=True, crop=(-1, 2))
    got = change_image(image, np.zeros(1, np.float32), chosen, (4, 6))
    expected = np.zeros((6, 4, 3))
    expected[:3, 1:] = image[2:, ::-1][:, :3]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_array_equal(change_boxes(np.array([[1.0, 2, 3, 2, 9]]), (6, 5), chosen), [[2, 0, 3, 2, 9]])


@pytest.mark.parametrize("degrees", [5.0, -30.0, 90.0])
def test_boxes_turn_with_the_image(degrees: float) -> None:
    """A bright square's centre stays the centre of its box."""
    image = np.zeros((60, 80, 3), np.float32)
    image[20:25, 50:55] = 255
    size = rotated_size((80, 60), degrees)
    chosen = Selection((80, 60), rotation=degrees)
    turned = change_image(image, np.zeros(1, np.float32), chosen, size)[:, :, 0]
    weights = turned / turned.sum()
    centre = (weights.sum(0) @ np.arange(size[0]) + 0.5, weights.sum(1) @ np.arange(size[1]) + 0.5)
    x, y, w, h = change_boxes(np.array([[50.0, 20, 5, 5]]), (80, 60), chosen)[0]
    np.testing.assert_allclose((x + w / 2, y + h / 2), centre, atol=1.1)
    corners = np.array([[-40, -30], [40, -30], [40, 30], [-40, 30]])
    angle = np.deg2rad(degrees)
    extent = np.ptp(corners @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]), axis=0)
    assert all(n <= m <= n + 3 for n, m in zip(extent, size, strict=True))


def test_colours_change_before_the_mean_is_subtracted() -> None:
    image = np.full((4, 4, 3), (50, 100, 200), np.float32)
    got = change_image(image, np.float32([127]), Selection((4, 4), hue=120.0, saturation=0.5), (4, 4))
    high, low, middle = 200, 200 * (1 - 0.75 * 0.5), 200 * (1 - 0.75 * 0.5 * (1 - 1 / 3))
    np.testing.assert_allclose(sorted(got[0, 0] + 127), sorted([high, low, middle]), atol=0.1)
    assert int(np.argmax(got[0, 0])) == 1  # red turned by 120 degrees is green


def test_training_changes_images_and_keeps_their_shape() -> None:
    x = spread((2, 3, 20, 30), 0, 255)
    rig = Rig(text("", "rotation_prob: 1 hue_rotation_prob: 1"), [x, np.tile(labels([(2, 1, 9, 8, 1)]), (2, 1, 1, 1))])
    image, got = rig.forward()
    assert image.shape == (2, 3, 16, 24) and got.shape == (2, 9, 4, 6)
    assert not np.allclose(image[0], image[1], atol=20) and got[:, 0].max() == 1


@pytest.mark.parametrize(("options", "transform", "inputs", "said"), [
    ("stride: 0", "", [np.zeros((1, 3, 4, 4)), labels([])], "stride"),
    ("", "mean_value: 1 mean_value: 2", [np.zeros((1, 3, 4, 4)), labels([])], "mean_value"),
    ("", "mean_file: '/none'", [np.zeros((1, 3, 4, 4)), labels([])], "/none"),
    ("", "", [np.zeros((1, 1, 4, 4)), labels([])], "images"), ("", "", [np.zeros((2, 3, 4, 4)), labels([])], "items"),
    ("", "", [np.zeros((1, 3, 4, 4)), 0 * labels([])], "16 numbers"),
    ("", "", [np.zeros((1, 3, 4, 4)), labels(BOXES, 3)], "16 numbers")])
def test_what_cannot_be(options: str, transform: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(text(options, transform=transform).replace("stride: 4", "") if "stride" in options
            else text(options, transform=transform), inputs).forward()
