"""AnnotatedData with MobileNet-YOLO's options: labels for YOLO's losses, crops at random, several sizes."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.data.augment.samplers import jittered_part
from scaffe.data.feeds.layer_feed import TEST, Share
from scaffe.errors import DataError
from tests.data.annotated import database
from tests.data.test_annotated import feed

YOLO = "annotated_data_param { yolo_data_type: 1 yolo_data_jitter: 0 %s }"
EACH = [f"resize_param {{ prob: {chance} resize_mode: WARP height: {n} width: {n + 3} }}"
        for chance, n in ((0.25, 8), (0.5, 12), (0.25, 16))]
SIZES = f"transform_param {{ mirror: true {' '.join(EACH)} }}"


def take(made, n):
    batches = [[array.copy() for array in made.next()] for _ in range(n)]
    made.close()
    return batches


@pytest.mark.parametrize("difficult", [True, False])
def test_labels_for_yolos_losses(tmp_path, difficult):
    folder, images, rows = database(tmp_path / "db")
    made = feed(folder, YOLO % f"train_diffcult: {str(difficult).lower()}")
    assert made.shapes == [(4, 3, 20, 30), (4, 1, 300, 5)]
    n_seen = 0
    for batch, (found, labels) in enumerate(take(made, 3)):
        for item in range(4):
            record = (4 * batch + item) % len(images)
            np.testing.assert_array_equal(found[item], images[record])
            kept = [row for row in rows[record] if difficult or not row[-1]]
            expected = [[label - 1, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]
                        for label, _, x1, y1, x2, y2, _ in kept]
            np.testing.assert_allclose(labels[item, : len(kept), :, 0], np.reshape(expected, (-1, 5)), atol=1e-6)
            assert not labels[item, len(kept):].any()
            n_seen += len(kept)
    assert n_seen


@pytest.mark.parametrize("keeps_shape", [True, False])
def test_crops_at_random(keeps_shape):
    rng = np.random.default_rng(3)
    parts = np.array([jittered_part(0.4, keeps_shape, rng) for _ in range(2000)])
    extents = parts[:, 2:] - parts[:, :2]
    assert parts.min() >= 0 and parts.max() <= 1 + 1e-6 and 0.6 < extents.min() < 0.61
    whole = (extents == 1).all(axis=1)
    assert 0.17 < whole.mean() < 0.23
    assert np.allclose(extents[:, 0], extents[:, 1]) == keeps_shape
    assert ((extents < 0.8).any(axis=1)).mean() > 0.25  # below half the jitter: of the 0.6 that take all of it


def test_a_crop_takes_the_objects_with_it(tmp_path):
    folder, *_ = database(tmp_path / "db")
    whole, = take(feed(folder, "transform_param { resize_param { height: 20 width: 30 } } " + YOLO % ""), 1)
    options = "transform_param { resize_param { height: 20 width: 30 } } annotated_data_param { yolo_data_type: 1 }"
    (images, labels), = take(feed(folder, options), 1)
    assert images.shape == whole[0].shape and not np.array_equal(images, whole[0])
    assert not np.allclose(labels, whole[1]) and labels[..., 1:, 0].min() >= -1e-6


def test_ssds_nets_are_not_cropped_so(tmp_path):
    folder, images, _ = database(tmp_path / "db")
    (found, rows), = take(feed(folder, "annotated_data_param { }"), 1)
    np.testing.assert_array_equal(found, images[:4])
    assert rows.shape[2] == 8


@pytest.mark.parametrize("phase", [0, TEST])
def test_ten_batches_of_a_size_the_same_on_all_ranks(tmp_path, phase):
    folder, *_ = database(tmp_path / "db")
    alone = take(feed(folder, SIZES + YOLO % "", phase=phase), 60)
    sizes = [images.shape[1:3] for images, _ in alone]
    assert all(size == sizes[i // 10 * 10] for i, size in enumerate(sizes)) and len(set(sizes)) > 1
    assert set(sizes) <= {(8, 11), (12, 15), (16, 19)}
    if phase != TEST:
        for rank in range(2):
            share = Share(rank, 2)
            for whole, part in zip(alone, take(feed(folder, SIZES + YOLO % "", share=share), 60), strict=True):
                for a, b in zip(whole, part, strict=True):
                    np.testing.assert_array_equal(a[rank::2], b)


@pytest.mark.parametrize(("options", "said"), [
    (SIZES.replace("0.5", "0.3"), "add up to 1"), (YOLO.replace("jitter: 0", "jitter: 1") % "", "yolo_data_jitter"),
    (YOLO % "difficult_label_warmup: true", "difficult_label_warmup")])
def test_what_cannot_be(tmp_path, options, said):
    folder, *_ = database(tmp_path / "db")
    with pytest.raises(DataError, match=said):
        feed(folder, options)
