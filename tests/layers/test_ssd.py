"""SSD's layers by value against formulas written out box by box, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.cases_detection import FOUND, GRID, TRUTH, VARIANCES, priors
from tests.layers.rig import Rig, spread
from tests.reference import detection as reference

CODES = {"CORNER": 1, "CENTER_SIZE": 2, "CORNER_SIZE": 3}


def run(text: str, *inputs: np.ndarray, dtype: type = np.float64) -> np.ndarray:
    """The top."""
    return Rig(text, list(inputs), dtype=dtype).forward()[0]


# -- PriorBox ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("options", "expected"), [
    ("min_size: 5", {"min_sizes": [5]}),
    ("min_size: 5.9 max_size: 11.5 aspect_ratio: 2 aspect_ratio: 3 aspect_ratio: 0.5",
     {"min_sizes": [5], "max_sizes": [11], "ratios": [2, 3, 0.5]}),
    ("min_size: 4 min_size: 7 aspect_ratio: 2 aspect_ratio: 0.5 flip: false clip: true",
     {"min_sizes": [4, 7], "ratios": [2, 0.5], "flip": False, "clip": True}),
    ("min_size: 6 step: 9 offset: 0.25", {"min_sizes": [6], "step": (9, 9), "offset": 0.25}),
    ("min_size: 6 step_h: 9 step_w: 5", {"min_sizes": [6], "step": (9, 5)})])
@pytest.mark.parametrize("image", [(25, 31), (8, 8)])
def test_prior_boxes(options: str, expected: dict, image: tuple[int, int]) -> None:
    inputs = np.zeros((2, 1, 3, 4)), np.zeros((2, 3, *image))
    got = run(f'type: "PriorBox" prior_box_param {{ {options} }}', *inputs)
    boxes = reference.priors(3, 4, *image, **expected)
    assert got.shape == (1, 2, 4 * len(boxes))
    np.testing.assert_allclose(got[0, 0].reshape(-1, 4), boxes, atol=2e-6)
    np.testing.assert_allclose(got[0, 1], 0.1, rtol=1e-7)


def test_prior_boxes_with_a_variance_each_and_a_given_image() -> None:
    options = "min_size: 5 img_h: 20 img_w: 40 variance: 0.1 variance: 0.2 variance: 0.3 variance: 0.4"
    got = run(f'type: "PriorBox" prior_box_param {{ {options} }}', np.zeros((1, 1, 1, 2)), np.zeros((1, 1, 7, 7)))
    np.testing.assert_allclose(got[0, 0].reshape(-1, 4), reference.priors(1, 2, 20, 40, [5]), atol=1e-6)
    np.testing.assert_allclose(got[0, 1].reshape(-1, 4), [[0.1, 0.2, 0.3, 0.4]] * 2)
    alone = run(f'type: "PriorBox" prior_box_param {{ {options} }}', np.zeros((1, 1, 1, 2)))
    np.testing.assert_array_equal(alone, got)


def test_prior_boxes_of_given_widths_and_heights() -> None:
    options = "width: 4.5 width: 9 height: 6 height: 3.25 step: 8 variance: [0.1, 0.1, 0.2, 0.2]"
    inputs = np.zeros((2, 1, 2, 3)), np.zeros((2, 3, 16, 30))
    got = run(f'type: "PriorBoxClustered" prior_box_param {{ {options} }}', *inputs)
    wanted = [[(x * 8 + 4 - w / 2) / 30, (y * 8 + 4 - h / 2) / 16, (x * 8 + 4 + w / 2) / 30, (y * 8 + 4 + h / 2) / 16]
              for y in range(2) for x in range(3) for w, h in ((4.5, 6), (9, 3.25))]
    np.testing.assert_allclose(got[0, 0].reshape(-1, 4), wanted, atol=1e-6)
    np.testing.assert_allclose(got[0, 1].reshape(-1, 4), [[0.1, 0.1, 0.2, 0.2]] * 12)


# -- DetectionOutput ---------------------------------------------------------------------------------------
def scene(n_priors: int = 40, n_items: int = 3, n_classes: int = 4, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Offsets, scores, prior boxes and variances, as float64 that float32 holds, so that overlaps are the same."""
    rng = np.random.default_rng(seed)
    corners, extents = rng.uniform(-0.1, 0.8, (n_priors, 2)), rng.uniform(0.1, 0.5, (n_priors, 2))
    boxes = np.concatenate([corners, corners + extents], axis=1)
    scores = spread((n_items, n_priors, n_classes), 0, 1, seed=seed + 1)
    return tuple(x.astype(np.float32).astype(float) for x in (
        rng.normal(0, 1, (n_items, n_priors, 4)), scores, boxes, np.tile([0.1, 0.1, 0.2, 0.2], (n_priors, 1))))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(("options", "expected"), [
    ("", {}),
    ("nms_param { nms_threshold: 0.45 top_k: 17 } keep_top_k: 9", {"threshold": 0.45, "top_k": 17, "keep": 9}),
    ("nms_param { nms_threshold: 0.9 eta: 0.7 } confidence_threshold: 0.4",
     {"threshold": 0.9, "eta": 0.7, "least_score": 0.4}),
    ("background_label_id: -1 confidence_threshold: 0.8", {"background": -1, "least_score": 0.8}),
    ("confidence_threshold: 1.5", {"least_score": 1.5})])
def test_detections(code: str, options: str, expected: dict) -> None:
    offsets, scores, boxes, variances = scene()
    text = f'type: "DetectionOutput" detection_output_param {{ num_classes: 4 code_type: {code} {options} }}'
    got = run(text, offsets.reshape(3, -1), scores.reshape(3, -1), np.stack([boxes.ravel(), variances.ravel()])[None])
    rows = reference.detect(offsets[:, :, None], scores, boxes, variances, CODES[code], 4, **expected)
    assert got.shape == (1, 1, len(rows), 7)
    np.testing.assert_allclose(got[0, 0], rows, rtol=1e-6, atol=1e-6)


def test_detections_of_classes_with_boxes_of_their_own() -> None:
    _, scores, boxes, variances = scene()
    offsets = np.random.default_rng(5).normal(0, 1, (3, 40, 4, 4))
    text = 'type: "DetectionOutput" detection_output_param { num_classes: 4 share_location: false ' \
           'variance_encoded_in_target: true }'
    got = run(text, offsets.reshape(3, -1), scores.reshape(3, -1), np.stack([boxes.ravel(), variances.ravel()])[None])
    rows = reference.detect(offsets, scores, boxes, np.ones_like(variances), 1, 4, share=False)
    np.testing.assert_allclose(got[0, 0], rows, rtol=1e-6, atol=1e-6)


# -- MultiBoxLoss ------------------------------------------------------------------------------------------
def objects(n_items: int, seed: int = 3) -> np.ndarray:
    """Rows of ground truth: some for most items, none for the last, in any order, and a row that fills up."""
    rng = np.random.default_rng(seed)
    rows = [[-1.0] * 8]
    for item in rng.permutation(np.repeat(np.arange(n_items - 1), 3)):
        x, y, w, h = rng.uniform(0, 0.6, 2).tolist() + rng.uniform(0.1, 0.4, 2).tolist()
        rows.append([item, rng.integers(1, 4), 0, x, y, x + w, y + h, rng.integers(2)])
    return np.array(rows, np.float32).astype(float).reshape(1, 1, -1, 8)


LOSSES = [
    ("", {}), ("code_type: CENTER_SIZE loc_weight: 3", {"code": 2, "loc_weight": 3}),
    ("code_type: CORNER_SIZE loc_loss_type: L2", {"code": 3, "l2": True}),
    ("conf_loss_type: LOGISTIC", {"logistic": True}), ("mining_type: NONE", {"mining": "none"}),
    ("mining_type: NONE conf_loss_type: LOGISTIC", {"mining": "none", "logistic": True}),
    ("mining_type: HARD_EXAMPLE sample_size: 7", {"mining": "hard", "sample_size": 7}),
    ("match_type: BIPARTITE neg_pos_ratio: 1.5", {"per_prediction": False, "ratio": 1.5}),
    ("overlap_threshold: 0.2 neg_overlap: 0.1 use_difficult_gt: false",
     {"threshold": 0.2, "neg_overlap": 0.1, "use_difficult": False}),
    ("ignore_cross_boundary_bbox: true", {"ignore_crossing": True}),
    ("encode_variance_in_target: true", {"in_target": True})]


@pytest.mark.parametrize(("options", "expected"), LOSSES)
@pytest.mark.parametrize("mode", ["VALID", "FULL", "BATCH_SIZE", "NONE"])
def test_the_loss(options: str, expected: dict, mode: str) -> None:
    (offsets, scores, boxes, variances), truth = scene(seed=8), objects(3)
    text = f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: 4 {options} }} ' \
           f"loss_param {{ normalization: {mode} }}"
    got = run(text, offsets.reshape(3, -1), 4 * scores.reshape(3, -1),
              np.stack([boxes.ravel(), variances.ravel()])[None], truth)
    total, n_matches = reference.multibox_loss(offsets, 4 * scores, boxes, variances, truth.reshape(-1, 8), **expected)
    divisor = {"VALID": n_matches, "FULL": 3 * 40, "BATCH_SIZE": 3, "NONE": 1}[mode]
    assert n_matches > 3
    np.testing.assert_allclose(got, total / divisor, rtol=1e-6)


def test_without_objects_there_is_no_loss() -> None:
    truth = np.full((1, 1, 1, 8), -1.0)
    rig = Rig('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 }',
              [np.ones((2, 24)), np.ones((2, 18)), priors(), truth])
    assert rig.forward()[0] == 0
    gradients, _ = rig.backward([1.0], [True, True, False, False])
    assert not gradients[0].any()
    assert not gradients[1].any()


def test_propagate_down_leaves_a_part_out() -> None:
    inputs = spread((2, 24), seed=1), spread((2, 18), seed=2), priors(), TRUTH
    whole, *parts = (run(f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: 3 }} {down}', *inputs) for down in (
        "", *(f"propagate_down: {a} propagate_down: {b} propagate_down: false propagate_down: false"
              for a, b in (("true", "false"), ("false", "true")))))
    assert min(parts) > 0
    np.testing.assert_allclose(whole, sum(parts))


def test_the_gradient_of_variances_in_the_target_leaves_them_out() -> None:
    """As weiliu89/caffe's: its factor 1 / variance is missing."""
    inputs = [spread((2, 24), -0.01, 0.01, seed=1), spread((2, 18), seed=2), priors(), TRUTH]
    gradients = []
    for options in ("", "encode_variance_in_target: true"):
        if options:
            inputs[0] = inputs[0] * np.tile(VARIANCES.ravel(), (2, 1))  # the same offsets in units of the variances
        rig = Rig(f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: 3 {options} }}', inputs)
        gradients.append(rig.backward([1.0], [True, True, False, False])[0][0])
    np.testing.assert_allclose(gradients[1], gradients[0], atol=1e-12)


# -- DetectionEvaluate -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("options", "expected"), [
    ("", {}),
    ("evaluate_difficult_gt: false", {"with_difficult": False}), ("overlap_threshold: 0.2", {"threshold": 0.2})])
@pytest.mark.parametrize("seed", range(3))
def test_evaluation(options: str, expected: dict, seed: int) -> None:
    rng, truth = np.random.default_rng(seed), objects(5, seed)
    near = truth.reshape(-1, 8)[1:][rng.integers(0, 12, 30)]
    found = np.concatenate([near[:, :2], spread((30, 1), 0, 1, seed=seed), near[:, 3:7] + rng.normal(0, 0.05, (30, 4)),
                            ], axis=1)
    found[::7, 1] = rng.integers(1, 4, len(found[::7]))
    found[-1] = [4, -1, -1, -1, -1, -1, -1]
    found = found.astype(np.float32).astype(float)
    got = run(f'type: "DetectionEvaluate" detection_evaluate_param {{ num_classes: 4 {options} }}',
              found.reshape(1, 1, -1, 7), truth)
    expected_rows = reference.evaluate(found.tolist(), truth.reshape(-1, 8)[1:].tolist(), 4, **expected)
    np.testing.assert_allclose(got[0, 0], expected_rows)


def test_evaluation_in_pixels(tmp_path) -> None:
    """Corners count as pixels of the box, so that the overlap of two thin boxes is larger than their fractions say."""
    (tmp_path / "sizes.txt").write_text("one 10 20\ntwo 100 200\n")
    truth = np.array([[0, 1, 0, 0, 0, 0.2, 0.1, 0], [1, 1, 0, 0, 0, 0.2, 0.1, 0]]).reshape(1, 1, 2, 8)
    found = np.array([[0, 1, 0.9, 0, 0, 0.1, 0.1], [1, 1, 0.8, 0, 0, 0.1, 0.1]]).reshape(1, 1, 2, 7)
    text = f'type: "DetectionEvaluate" detection_evaluate_param {{ num_classes: 2 overlap_threshold: 0.55 ' \
           f'name_size_file: "{tmp_path / "sizes.txt"}" }}'
    # 10 x 20: 3 x 2 of 5 x 2 pixels, 0.6; 100 x 200: 21 x 11 of 41 x 11, 0.51
    np.testing.assert_array_equal(run(text, found, truth)[0, 0, 1:, 3], [1, 0])


def test_evaluation_in_pixels_counts_images_without_detections(tmp_path) -> None:
    """The second batch begins at the third image, though the first has no detection in its second."""
    (tmp_path / "sizes.txt").write_text("a 100 200\nb 100 200\nc 10 20\n")
    text = f'type: "DetectionEvaluate" detection_evaluate_param {{ num_classes: 2 overlap_threshold: 0.55 ' \
           f'name_size_file: "{tmp_path / "sizes.txt"}" }}'
    truth = np.array([[0, 1, 0, 0, 0, 0.2, 0.1, 0], [1, 1, 0, 0, 0, 0.2, 0.1, 0]]).reshape(1, 1, 2, 8)
    found = np.array([0, 1, 0.9, 0, 0, 0.1, 0.1]).reshape(1, 1, 1, 7)
    rig = Rig(text, [found, truth])
    assert [rig.forward()[0][0, 0, 1, 3] for _ in range(2)] == [0, 1]


SAVED = """save_output_param { output_directory: "FOLDER/out" output_name_prefix: "det_" output_format: "FORMAT"
  label_map_file: "FOLDER/map.prototxt" name_size_file: "FOLDER/sizes.txt" num_test_image: 2 }"""


@pytest.mark.parametrize(("kind", "files"), [
    ("VOC", {"det_cat.txt": "one 0.75 20 30 60 70\n", "det_7.txt": "two 0.5 10 15 30 35\n"}),
    ("ILSVRC", {"det_.txt": "one 1 0.75 20 30 60 70\ntwo 2 0.5 10 15 30 35\n"}),
    ("COCO", {"det_.json":
              '[{"image_id": "one", "category_id": "cat", "bbox": [20.0, 30.0, 40.0, 40.0], "score": 0.75}, '
              '{"image_id": "two", "category_id": 7, "bbox": [10.0, 15.0, 20.0, 20.0], "score": 0.5}]\n'})])
def test_detections_are_saved(tmp_path, kind: str, files: dict) -> None:
    """Two images, one detection in each, of one prior box that covers the same part of both."""
    (tmp_path / "map.prototxt").write_text('item { name: "none" label: 0 } item { name: "cat" label: 1 } '
                                           'item { name: "7" label: 2 }')
    (tmp_path / "sizes.txt").write_text("one 100 200\ntwo 50 100\nthree 9 9\n")
    one = np.stack([np.array([0.1, 0.3, 0.3, 0.7]), np.full(4, 0.1)])[None]
    scores = np.array([[0, 0.75, 0], [0, 0, 0.5]])
    text = 'type: "DetectionOutput" detection_output_param { num_classes: 3 confidence_threshold: 0.1 ' \
           + SAVED.replace("FOLDER", str(tmp_path)).replace("FORMAT", kind) + " }"
    run(text, np.zeros((2, 4)), scores, one)
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == files


# -- mistakes ----------------------------------------------------------------------------------------------
FLAT, SCORES = np.zeros((2, 24)), np.zeros((2, 18))
MAP, PICTURE = np.zeros((1, 1, 2, 2)), np.zeros((1, 3, 8, 8))


@pytest.mark.parametrize(("text", "inputs", "said"), [
    ('type: "PriorBox"', [MAP, PICTURE], "min_size"),
    ('type: "PriorBox" prior_box_param { min_size: 0 }', [MAP, PICTURE], "above 0"),
    ('type: "PriorBox" prior_box_param { min_size: 5 max_size: 4 }', [MAP, PICTURE], "max_size above min_size"),
    ('type: "PriorBox" prior_box_param { min_size: 5 min_size: 6 max_size: 9 }', [MAP, PICTURE], "one max_size"),
    ('type: "PriorBox" prior_box_param { min_size: 5 variance: 1 variance: 2 }', [MAP, PICTURE], "variances"),
    ('type: "PriorBox" prior_box_param { min_size: 5 variance: 0 }', [MAP, PICTURE], "variances"),
    ('type: "PriorBox" prior_box_param { min_size: 5 aspect_ratio: 0 }', [MAP, PICTURE], "aspect ratios"),
    ('type: "PriorBox" prior_box_param { min_size: 5 img_size: 9 img_h: 9 }', [MAP, PICTURE], "not both"),
    ('type: "PriorBox" prior_box_param { min_size: 5 step_h: 9 }', [MAP, PICTURE], "above 0"),
    ('type: "PriorBox" prior_box_param { min_size: 5 }', [MAP], "second bottom"),
    ('type: "PriorBox" prior_box_param { min_size: 5 }', [MAP[0], PICTURE], "4 axes"),
    ('type: "PriorBoxClustered" prior_box_param { width: 5 }', [MAP, PICTURE], "widths and heights"),
    ('type: "DetectionOutput"', [FLAT, SCORES, priors()], "num_classes"),
    ('type: "DetectionOutput" detection_output_param { num_classes: 4 }', [FLAT, SCORES, priors()], "confidences"),
    ('type: "DetectionOutput" detection_output_param { num_classes: 3 }', [FLAT[:, :20], SCORES, priors()], "offsets"),
    ('type: "DetectionOutput" detection_output_param { num_classes: 3 nms_param { eta: 0 } }',
     [FLAT, SCORES, priors()], "eta"),
    ('type: "DetectionOutput" detection_output_param { num_classes: 3 nms_param { nms_threshold: -1 } }',
     [FLAT, SCORES, priors()], "nms_threshold"),
    ('type: "DetectionOutput" detection_output_param { num_classes: 3 }', [FLAT, SCORES, np.zeros((2, 2, 24))],
     "prior"),
    ('type: "DetectionOutput" detection_output_param { num_classes: 3 code_type: CENTER_SIZE }',
     [FLAT, SCORES, 0 * priors()], "an area"),
    ('type: "MultiBoxLoss"', [FLAT, SCORES, priors(), TRUTH], "num_classes"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 share_location: false }',
     [np.zeros((2, 72)), SCORES, priors(), TRUTH], "mining_type: NONE"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 do_neg_mining: false }',
     [FLAT, SCORES, priors(), TRUTH], "do_neg_mining"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 background_label_id: 3 }',
     [FLAT, SCORES, priors(), TRUTH], "background_label_id 3"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 map_object_to_agnostic: true }',
     [FLAT, SCORES, priors(), TRUTH], "num_classes 2"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 mining_type: HARD_EXAMPLE sample_size: 0 }',
     [FLAT, SCORES, priors(), TRUTH], "sample_size"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 neg_pos_ratio: nan }', [FLAT, SCORES, priors(), TRUTH],
     "neg_pos_ratio"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 2 }', [FLAT, SCORES[:, :12], priors(), TRUTH], "label 2"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 background_label_id: 1 }',
     [FLAT, SCORES, priors(), TRUTH], "background"),
    ('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 }', [FLAT, SCORES, priors(), TRUTH[..., :7]], "8"),
    ('type: "DetectionEvaluate"', [FOUND, TRUTH], "num_classes"),
    ('type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 overlap_threshold: 0 }', [FOUND, TRUTH],
     "overlap_threshold"),
    ('type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 name_size_file: "none" }', [FOUND, TRUTH],
     "none: No such file"),
    ('type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 background_label_id: 1 }', [FOUND, TRUTH],
     "background"),
    ('type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 }', [FOUND[:, :6], TRUTH], "7"),
    ('type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 resize_param { } }', [FOUND, TRUTH],
     "height and width")])
def test_what_cannot_be(text: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said) as refusal:
        run(text, *inputs)
    assert "\n" not in str(refusal.value)


def test_the_boxes_have_no_gradient() -> None:
    rig = Rig('type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 }', [FLAT, SCORES, priors(), TRUTH])
    with pytest.raises(LayerError, match="no gradient with respect to bottom 2"):
        rig.backward([1.0], [True, True, True, False])


def test_neither_reads_beyond_few_boxes() -> None:
    """One prior box, one class beside the background, an object that covers the image."""
    one = priors(GRID[:1])
    truth = np.array([0, 1, 0, 0, 0, 1, 1, 0.0]).reshape(1, 1, 1, 8)
    assert run('type: "MultiBoxLoss" multibox_loss_param { num_classes: 2 }', np.zeros((1, 4)), np.zeros((1, 2)), one,
               truth) > 0
