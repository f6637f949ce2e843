"""Cascade R-CNN's layers by value, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.cases_cascade import GROUPS, MAPS, OPTIONS, REGIONS, SPREAD
from tests.layers.rig import Rig, spread
from tests.reference import cascade as reference

FIELDS = [([(8, 6), (5, 10)], 4), ([(12, 12)], 8)]
BOXES = spread((4, 8), -2, 2)
ROWS = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(("ends", "low", "high"), [("low_scale: 5 high_scale: 20", 5, 20), ("high_scale: 20", 0, 20),
                                                   ("low_scale: 9", 9, 1e9), ("", 0, 1e9)])
def test_regions_of_some_scales(ends: str, low: float, high: float) -> None:
    regions, rows = Rig(f'type: "ScaleRoute" scale_route_param {{ {ends} }}', [REGIONS, ROWS], 2).forward()
    wanted = [i for i, region in enumerate(REGIONS) if low <= reference.scale(region) < high]
    assert 0 < len(wanted) <= 4
    np.testing.assert_array_equal(regions, REGIONS[wanted])
    np.testing.assert_array_equal(rows, ROWS[wanted])


@pytest.mark.parametrize(("ends", "nearest"), [("low_scale: 100", 2), ("low_scale: 0.5 high_scale: 1", 1)])
def test_the_nearest_region_where_none_fits(ends: str, nearest: int) -> None:
    found = Rig(f'type: "ScaleRoute" scale_route_param {{ {ends} }}', [REGIONS]).forward()[0]
    np.testing.assert_array_equal(found, REGIONS[[nearest]])


def test_decoded_regions() -> None:
    wanted = [reference.decoded(region[1:], delta[4:]) for region, delta in zip(REGIONS, BOXES, strict=True)]
    tested = Rig(f'type: "DecodeBBox" {SPREAD}', [BOXES, REGIONS], phase=1).forward()[0]
    np.testing.assert_allclose(tested, np.column_stack([REGIONS[:, 0], wanted]), rtol=1e-6, atol=1e-6)
    true = np.array([[0, 0.5], [0, 0.95], [0, 0.9], [0, 0.0]])
    trained = Rig(f'type: "DecodeBBox" {SPREAD}', [BOXES, REGIONS.reshape(4, 5, 1, 1), true]).forward()[0]
    np.testing.assert_allclose(trained[:, :, 0, 0], tested[[0, 2]], rtol=1e-6)  # without a true box, and one of no area


@pytest.mark.parametrize("kind", ["IOU", "IOMU", "IOFU"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_regions_from_groups_of_fields(kind: str, dtype: type) -> None:
    text = f'type: "BoxGroupOutput" {SPREAD} box_group_output_param {{ {OPTIONS} nms_type: "{kind}" {GROUPS} }}'
    regions, scored = Rig(text, MAPS, 2, dtype=dtype).forward()
    rows = []
    for item in range(2):
        found = reference.boxes_of_item([MAPS[:2], MAPS[2:]], FIELDS, item, 1 / 1.5, 3, 3, 0.3)
        rows += [[item, *box, score] for score, box in reference.kept(found, kind, 30, 6, 0.4)]
    assert len(rows) > 6
    np.testing.assert_allclose(scored[:, :, 0, 0], rows, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(regions, scored[:, :5])


def test_one_region_where_there_is_none() -> None:
    text = f'type: "BoxGroupOutput" box_group_output_param {{ fg_thr: 2 {GROUPS} }}'
    regions, scored = Rig(text, MAPS, 2).forward()
    np.testing.assert_array_equal(regions.ravel(), [0, 1, 1, 10, 10])
    np.testing.assert_array_equal(scored.ravel(), np.zeros(6))


GROUP = 'type: "BoxGroupOutput" box_group_output_param { %s }'


@pytest.mark.parametrize(("text", "inputs", "said"), [
    ('type: "ScaleRoute" scale_route_param { low_scale: 9 high_scale: 2 }', [REGIONS], "the low one first"),
    ('type: "ScaleRoute"', [REGIONS, np.zeros((3, 1))], "R rows"),
    ('type: "DecodeBBox" bbox_reg_param { bbox_mean: 0 bbox_std: 1 }', [BOXES, REGIONS], "4 bbox_mean"),
    ('type: "DecodeBBox"', [BOXES[:3], REGIONS], "predictions"),
    ('type: "DecodeBBox"', [BOXES, REGIONS, np.ones((4, 1))], "none of 4 regions"),
    (GROUP % GROUPS, MAPS[:2], "two bottoms"), (GROUP % f'{GROUPS} nms_type: "x"', MAPS, "nms_type"),
    (GROUP % f"{GROUPS} field_whr: 0", MAPS, "field_whr"),
    (GROUP % "box_group_param { stride: 4 }", MAPS[:2], "field_w"),
    (GROUP % GROUPS, [MAPS[0], MAPS[1][:, :3], *MAPS[2:]], "probabilities")])
def test_what_cannot_be(text: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(text, inputs).forward()
