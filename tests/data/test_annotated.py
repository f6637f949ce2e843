"""Feeds of AnnotatedDatum records: what is in them, and that ranks, threads and resumed runs see the same crops."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.data.feeds.layer_feed import TEST, TRAIN, ReaderOptions, Share, open_layer_feed
from scaffe.errors import DataError
from scaffe.proto import caffe_pb2
from tests.data.annotated import database, record, scenes
from tests.data.databases import write

ALL = """transform_param { mirror: true scale: 0.5 mean_value: 104 mean_value: 117 mean_value: 123
  resize_param { prob: 1 resize_mode: WARP height: 12 width: 16 interp_mode: LINEAR interp_mode: AREA
    interp_mode: NEAREST interp_mode: CUBIC interp_mode: LANCZOS4 }
  emit_constraint { emit_type: CENTER }
  distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5 contrast_upper: 1.5
    hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5 saturation_upper: 1.5
    random_order_prob: 0.3 }
  expand_param { prob: 0.5 max_expand_ratio: 4 } }
annotated_data_param { batch_sampler { max_sample: 1 max_trials: 1 }
  batch_sampler { sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }
    sample_constraint { min_jaccard_overlap: 0.3 } max_sample: 1 max_trials: 50 } label_map_file: "unused" }"""


def feed(folder, options="", batch=4, phase=TRAIN, share=None, n_threads=0, tops=2, **reading):
    """The feed of an AnnotatedData layer."""
    names = " ".join(f'top: "{i}"' for i in range(tops))
    param = text_format.Parse(f'type: "AnnotatedData" {names} data_param {{ source: "{folder}" batch_size: {batch} }} '
                              f"{options}", caffe_pb2.LayerParameter())
    return open_layer_feed(param, phase, share or Share(), lambda: 1701, ReaderOptions(n_threads, **reading))


def take(made, n):
    """Copies of the next batches: images in Caffe's order, rows."""
    batches = [tuple(array.copy() for array in made.next()) for _ in range(n)]
    made.close()
    return [(np.moveaxis(images, -1, 1), *(rows.reshape(-1, 8) for rows in more)) for images, *more in batches]


@pytest.mark.parametrize("encoding", [".png", ""])
def test_records_come_as_they_are(tmp_path, encoding):
    folder, images, rows = database(tmp_path / "db", encoding=encoding)
    made = feed(folder)
    assert made.shapes == [(4, 3, 20, 30), (1, 1, 1, 8)]
    for batch, (found, objects) in enumerate(take(made, 3)):
        records = [(4 * batch + i) % len(images) for i in range(4)]
        np.testing.assert_array_equal(found, np.moveaxis(images[records], -1, 1))
        expected = [(item, *row) for item, r in enumerate(records) for row in rows[r]]
        np.testing.assert_allclose(objects, expected, rtol=1e-6)


def test_a_batch_without_objects_has_one_row_of_minus_ones(tmp_path):
    folder, *_ = database(tmp_path / "db", n=1)
    (_, rows), = take(feed(folder, batch=2), 1)
    np.testing.assert_array_equal(rows, np.full((1, 8), -1))


def test_one_top_and_records_without_annotations(tmp_path):
    images, _ = scenes(2)
    write(tmp_path / "db", [(b"%d" % i, record(image, [], typed=False)) for i, image in enumerate(images)])
    assert feed(tmp_path / "db", tops=1).shapes == [(4, 3, 20, 30)]
    made = feed(tmp_path / "db")
    assert made.shapes[1] == (4,)
    np.testing.assert_array_equal(made.next()[1], 0)
    assert feed(tmp_path / "db", "annotated_data_param { anno_type: BBOX }").shapes[1] == (1, 1, 1, 8)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_threads_change_nothing(tmp_path, n_threads):
    folder, *_ = database(tmp_path / "db")
    alone, threaded = take(feed(folder, ALL), 6), take(feed(folder, ALL, n_threads=n_threads), 6)
    for expected, found in zip(alone, threaded, strict=True):
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_change_nothing(tmp_path, ranks):
    folder, *_ = database(tmp_path / "db")
    alone = take(feed(folder, ALL, batch=6), 4)
    parts = [take(feed(folder, ALL, batch=6, share=Share(rank, ranks)), 4) for rank in range(ranks)]
    for i, (images, rows) in enumerate(alone):
        for rank in range(ranks):
            mine, objects = parts[rank][i]
            np.testing.assert_array_equal(mine, images[rank::ranks])
            expected = rows[(rows[:, 0] % ranks == rank) & (rows[:, 0] >= 0)]
            np.testing.assert_array_equal(objects[objects[:, 0] >= 0, 1:], expected[:, 1:])


def test_a_resumed_feed_goes_on_as_if_never_stopped(tmp_path):
    folder, *_ = database(tmp_path / "db")
    whole, rest = take(feed(folder, ALL), 6), take(feed(folder, ALL, share=Share(first_batch=4)), 2)
    for expected, found in zip(whole[4:], rest, strict=True):
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_boxes_follow_what_is_drawn(tmp_path):
    """A white rectangle on black ends up where its box says, through expansion, crop, resize and mirror."""
    image = np.zeros((80, 100, 3), np.uint8)
    image[24:64, 30:70] = 255
    write(tmp_path / "db", [(b"0", record(image, [(1, 0, 0.3, 0.3, 0.7, 0.8, 0)]))])
    options = """transform_param { mirror: true resize_param { height: 90 width: 60 }
        expand_param { max_expand_ratio: 2 } }
      annotated_data_param { batch_sampler { sampler { min_scale: 0.5 max_scale: 1 min_aspect_ratio: 0.5
        max_aspect_ratio: 2 } sample_constraint { min_object_coverage: 1 } max_sample: 1 max_trials: 50 } }"""
    sizes = set()
    for images, rows in take(feed(tmp_path / "db", options, batch=1), 40):
        (left, top, right, bottom), = rows[:, 3:7] * [60, 90, 60, 90]
        lit = np.argwhere(images[0, 0] > 127)
        np.testing.assert_allclose([left, top], lit.min(axis=0)[::-1], atol=2.5)
        np.testing.assert_allclose([right, bottom], lit.max(axis=0)[::-1] + 1, atol=2.5)
        sizes.add(round(right - left))
    assert len(sizes) > 5


@pytest.mark.parametrize(("options", "shape"), [
    ("resize_param { height: 9 width: 14 resize_mode: FIT_LARGE_SIZE_AND_PAD pad_value: 7 }", (9, 14)),
    ("resize_param { height: 9 width: 9 resize_mode: FIT_SMALL_SIZE }", (9, 13)),
    ("resize_param { height: 9 width: 14 } crop_h: 5 crop_w: 7", (5, 7)), ("crop_size: 11", (11, 11))])
def test_sizes(tmp_path, options, shape):
    folder, *_ = database(tmp_path / "db")
    made = feed(folder, f"transform_param {{ {options} }}", batch=1, phase=TEST)
    assert made.shapes[0][2:] == shape
    assert take(made, 1)[0][0].shape == (1, 3, *shape)


def test_padding_keeps_an_images_shape(tmp_path):
    image = np.full((20, 30, 3), 200, np.uint8)
    write(tmp_path / "db", [(b"0", record(image, [(1, 0, 0, 0, 1, 1, 0), (1, 1, 0.5, 0.5, 1, 1, 0)]))])
    resize = "height: 30 width: 30 resize_mode: FIT_LARGE_SIZE_AND_PAD pad_value: 9"
    options = f"transform_param {{ resize_param {{ {resize} }} }}"
    (images, rows), = take(feed(tmp_path / "db", options, batch=1), 1)
    expected = np.full((30, 30), 9)
    expected[5:25] = 200
    np.testing.assert_array_equal(images[0, 1], expected)
    np.testing.assert_allclose(rows[:, 3:7], [[0, 5 / 30, 1, 25 / 30], [0.5, 15 / 30, 1, 25 / 30]], atol=1e-6)


@pytest.mark.parametrize("noise", ["decolorize: true", "gauss_blur: true", "hist_eq: true", "clahe: true", "jpeg: 40",
                                   "erode: true", "posterize: true", "inverse: true", "convert_to_hsv: true",
                                   "saltpepper: true saltpepper_param { fraction: 0.5 value: 255 }",
                                   "convert_to_lab: true"])
def test_noise_changes_the_image(tmp_path, noise):
    folder, images, _ = database(tmp_path / "db")
    (found, _), = take(feed(folder, f"transform_param {{ noise_param {{ {noise} }} }}"), 1)
    assert (found != np.moveaxis(images[:4], -1, 1)).any(axis=(1, 2, 3)).all()
    if noise == "inverse: true":
        np.testing.assert_array_equal(found, 255 - np.moveaxis(images[:4], -1, 1).astype(float))
    if noise.startswith("posterize"):
        assert set(np.unique(found)) <= {32, 96, 160, 224}


def test_distortion_of_colours():
    """Only brightness, by at most 20; then only hue, which leaves what is grey as it is."""
    from scaffe.data.augment.distortion import distort

    image = np.full((4, 4, 3), 100, np.uint8)
    p = caffe_pb2.DistortionParameter(brightness_prob=1, brightness_delta=20)
    values = [distort(p, image, np.random.default_rng(i)) for i in range(30)]
    assert all((v == v[0, 0, 0]).all() for v in values)
    assert min(v.min() for v in values) >= 80
    assert max(v.max() for v in values) <= 120
    assert len({int(v[0, 0, 0]) for v in values}) > 5
    p = caffe_pb2.DistortionParameter(hue_prob=1, hue_delta=30)
    np.testing.assert_array_equal(distort(p, image, np.random.default_rng(0)), image)
    red = np.zeros((1, 1, 3), np.uint8)
    red[0, 0, 2] = 255
    turned = {tuple(distort(p, red, np.random.default_rng(i))[0, 0].tolist()) for i in range(20)}
    assert len(turned) > 5


def test_bad_records_are_passed_over(tmp_path):
    images, rows = scenes(6)
    records = [(b"%d" % i, record(images[i], rows[i])) for i in range(6)]
    records[0] = (b"0", b"\xff\xff")
    records[3] = (b"3", record(images[3], rows[3])[:40])
    write(tmp_path / "db", records)
    said = []
    (found, _), (again, _) = take(feed(tmp_path / "db", batch=3, n_bad_allowed=2, on_bad=said.append), 2)
    np.testing.assert_array_equal(np.moveaxis(found, 1, -1), images[[1, 1, 2]])
    np.testing.assert_array_equal(np.moveaxis(again, 1, -1), images[[4, 4, 5]])
    assert len(said) == 2
    with pytest.raises(DataError, match="record '0'"):
        feed(tmp_path / "db")


@pytest.mark.parametrize(("options", "said"), [
    ("transform_param { resize_param { height: 5 } }", "height and width"),
    ("transform_param { crop_width: 5 crop_height: 5 }", "crop_w and crop_h"),
    ("transform_param { crop_h: 5 }", "go together"), ("transform_param { crop_size: 25 }", "larger than the image"),
    ("transform_param { expand_param { max_expand_ratio: 1 } }", "max_expand_ratio"),
    ("transform_param { distort_param { contrast_lower: 2 contrast_upper: 1 } }", "contrast_lower"),
    ("transform_param { distort_param { hue_delta: -1 } }", "hue_delta"),
    ("transform_param { resize_param { height: 5 width: 5 resize_mode: FIT_SMALL_SIZE } }", "one image a batch"),
    ("transform_param { mean_value: 1 mean_value: 2 }", "mean_value"),
    ("annotated_data_param { batch_sampler { sampler { min_scale: 0 } } }", "min_scale"),
    ("annotated_data_param { batch_sampler { sampler { min_aspect_ratio: 2 } } }", "min_aspect_ratio"),
    ("annotated_data_param { batch_sampler { max_trials: 2147483648 } }", "at most 1000000 max_trials")])
def test_what_cannot_be(tmp_path, options, said):
    folder, *_ = database(tmp_path / "db")
    with pytest.raises(DataError, match=said) as error:
        feed(folder, options).next()
    assert "\n" not in str(error.value)


def test_other_layers_refuse_the_options(tmp_path):
    folder, *_ = database(tmp_path / "db")
    text = f'type: "Data" top: "x" top: "y" data_param {{ source: "{folder}" batch_size: 1 }} ' \
           "transform_param { resize_param { height: 3 width: 3 } }"
    with pytest.raises(DataError, match="resize_param works in AnnotatedData"):
        open_layer_feed(text_format.Parse(text, caffe_pb2.LayerParameter()), TRAIN, Share(), lambda: 1)


def test_grey_images_and_forced_colours(tmp_path):
    image = cv2.cvtColor(np.full((6, 5, 3), 9, np.uint8), cv2.COLOR_BGR2GRAY)[:, :, None]
    write(tmp_path / "db", [(b"0", record(image, []))])
    assert feed(tmp_path / "db", batch=1).shapes[0] == (1, 1, 6, 5)
    assert feed(tmp_path / "db", "transform_param { force_color: true }", batch=1).shapes[0] == (1, 3, 6, 5)
