"""DenseImageData (SegNet) and ImageSegData (DeepLab, PSPNet): which pairs, and how each is transformed."""

from itertools import count

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.data.feeds.layer_feed import TEST, TRAIN, ReaderOptions, Share, open_layer_feed
from scaffe.errors import DataError
from scaffe.proto import caffe_pb2
from tests.data.databases import unlike_images
from tests.reference.pairs import pair

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
N, HEIGHT, WIDTH = 5, 6, 9
MEAN = [10.0, 20.0, 30.0]
MEANS = " ".join(f"mean_value: {value}" for value in MEAN)


@pytest.fixture
def folder(tmp_path):
    """Five images with labels, and a list of them."""
    images, labels = unlike_images(N, (HEIGHT, WIDTH, 3)), unlike_images(N, (HEIGHT, WIDTH), seed=1)
    for i in range(N):
        cv2.imwrite(str(tmp_path / f"{i}.png"), images[i])
        cv2.imwrite(str(tmp_path / f"l{i}.png"), labels[i])
    (tmp_path / "list").write_text("".join(f"{i}.png l{i}.png\n" for i in range(N)))
    (tmp_path / "numbers").write_text("".join(f"{i}.png {i * 3}\n" for i in range(N)))
    return tmp_path, images, labels


def dense(folder, options="", transform=""):
    return text_format.Parse(f'''type: "DenseImageData" top: "data" top: "label" transform_param {{ {transform} }}
        dense_image_data_param {{ source: "{folder}/list" root_folder: "{folder}/" {options} }}''',
                             caffe_pb2.LayerParameter())


def seg(folder, options="", transform="", source="list"):
    return text_format.Parse(f'''type: "ImageSegData" top: "data" top: "label" top: "dim"
        transform_param {{ {transform} }} image_data_param {{ source: "{folder}/{source}" root_folder: "{folder}/"
        {options} }}''', caffe_pb2.LayerParameter())


def batches(param, n_batches, phase=TRAIN, share=None, draw=None, options=ReaderOptions(2)):  # noqa: B008
    """Copies of the first batches, in Caffe's order of axes."""
    feed = open_layer_feed(param, phase, share or Share(), draw or count(7).__next__, options)
    taken = []
    for _ in range(n_batches):
        taken.append([np.moveaxis(a.copy(), -1, 1) if a.ndim == 4 else a.copy() for a in feed.next()])
        if len(taken[0][0]) > 1:
            assert [a.shape for a in taken[-1]] == [tuple(s) for s in feed.shapes]
    feed.close()
    return taken


def raw(seed):
    """The numbers that the layer draws."""
    return iter(np.random.RandomState(seed).randint(0, 1 << 32, 1000, np.uint64))


def check(found, labels_found, expected):
    np.testing.assert_allclose(np.moveaxis(found, 0, -1), expected[0], rtol=1e-6)
    np.testing.assert_array_equal(labels_found[0], expected[1])


def test_dense_images_in_order(folder):
    path, images, labels = folder
    (first, second) = batches(dense(path, "batch_size: 3", f"{MEANS} scale: 0.5"), 2)
    for i, (found, marks) in enumerate(zip(np.concatenate([first[0], second[0]]),
                                           np.concatenate([first[1], second[1]]), strict=True)):
        check(found, marks, pair(images[i % N], labels[i % N], (HEIGHT, WIDTH), (0, 0), False, MEAN, 0.5, 0))


@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_dense_images_are_mirrored_and_cropped_at_random_in_both_phases(folder, phase):
    path, images, labels = folder
    numbers = raw(7)
    options = "batch_size: 2 mirror: true crop_height: 4 crop_width: 7"
    for b, (found, marks) in enumerate(batches(dense(path, options), 4, phase)):
        for i in range(2):
            mirrored, row, column = next(numbers) % 2, next(numbers) % (HEIGHT - 3), next(numbers) % (WIDTH - 6)
            record = (2 * b + i) % N
            check(found[i], marks[i], pair(images[record], labels[record], (4, 7), (int(row), int(column)),
                                           bool(mirrored), [0.0] * 3, 1, 0))


def test_labels_are_resized_to_the_nearest(folder):
    path, _, labels = folder
    (found,) = batches(dense(path, "batch_size: 1 new_height: 12 new_width: 18 is_color: false"), 1)
    assert found[0].shape == (1, 1, 12, 18)
    np.testing.assert_array_equal(found[1][0, 0], np.kron(labels[0], np.ones((2, 2))))


@pytest.mark.parametrize(("size", "factor"), [((2 * HEIGHT, 2 * WIDTH), 2), ((3 * HEIGHT + 1, 3 * WIDTH + 2), 3)])
def test_labels_of_a_net_whose_output_is_smaller(folder, size, factor):
    """ENet's encoder is trained on labels of an eighth of the image's height and width."""
    path, _, labels = folder
    options = f"batch_size: {N} new_height: {size[0]} new_width: {size[1]} label_divide_factor: {factor}"
    ((found, marks),) = batches(dense(path, options), 1)
    assert found.shape == (N, 3, *size)
    np.testing.assert_array_equal(marks[:, 0], labels)
    numbers = raw(7)
    ((_, marks),) = batches(dense(path, f"{options} mirror: true"), 1)
    for mark, label in zip(marks[:, 0], labels, strict=True):
        np.testing.assert_array_equal(mark, label[:, ::-1] if int(next(numbers)) % 2 else label)


@pytest.mark.parametrize("options", ["label_divide_factor: 0", "label_divide_factor: 2",
                                     "label_divide_factor: 9 new_height: 8 new_width: 16",
                                     "label_divide_factor: 2 new_height: 8 new_width: 8 crop_height: 4 crop_width: 4"])
def test_a_factor_of_labels_that_leaves_their_size_open_is_refused(folder, options):
    with pytest.raises(DataError, match="label_divide_factor .* goes with a new_height and new_width"):
        batches(dense(folder[0], options), 1)


@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_segmentation_images_are_padded_and_cropped(folder, phase):
    path, images, labels = folder
    numbers = raw(7)
    transform = f"{MEANS} mirror: true crop_height: 8 crop_width: 5"
    param = seg(path, "batch_size: 2 label_type: PIXEL", transform)
    for b, (found, marks, sizes) in enumerate(batches(param, 3, phase)):
        for i in range(2):
            mirrored = bool(next(numbers) % 2)
            offsets = (0, int([next(numbers), next(numbers)][1] % 5)) if phase == TRAIN else (0, 2)
            record = (2 * b + i) % N
            check(found[i], marks[i], pair(images[record], labels[record], (8, 5), offsets, mirrored, MEAN, 1, 255))
            assert sizes[i].ravel().tolist() == [HEIGHT, 5]


def test_segmentation_images_at_random_scales(folder):
    path, images, labels = folder
    numbers = raw(7)
    transform = "scale_factors: 0.5 scale_factors: 1 scale_factors: 1.5 crop_size: 4"
    for b, (found, marks, _) in enumerate(batches(seg(path, "label_type: PIXEL ignore_label: 9", transform), 8, TEST)):
        factor = (0.5, 1, 1.5)[int(next(numbers)) % 3]
        size = int(WIDTH * factor), int(HEIGHT * factor)
        image = cv2.resize(images[b % N], size) if factor != 1 else images[b % N]
        marked = cv2.resize(labels[b % N], size, interpolation=cv2.INTER_NEAREST) if factor != 1 else labels[b % N]
        offsets = tuple(max(n - 4, 0) // 2 for n in marked.shape)
        check(found[0], marks[0], pair(image, marked, (4, 4), offsets, False, [0.0] * 3, 1, 9))


@pytest.mark.parametrize(("options", "source", "value"), [
    ("label_type: IMAGE", "numbers", lambda i: 3 * i), ("label_type: NONE ignore_label: 250", "list", lambda i: 250)])
def test_labels_of_whole_images(folder, options, source, value):
    for i, (_, marks, _) in enumerate(batches(seg(folder[0], options, source=source), 3)):
        np.testing.assert_array_equal(marks, np.full((1, 1, HEIGHT, WIDTH), value(i)))


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_a_batch_out(folder, ranks):
    param = seg(folder[0], "batch_size: 4 label_type: PIXEL shuffle: true rand_skip: 3", "mirror: true crop_size: 5")
    alone = batches(param, 3)
    for rank in range(ranks):
        for whole, part in zip(alone, batches(param, 3, share=Share(rank, ranks)), strict=True):
            for a, b in zip(whole, part, strict=True):
                np.testing.assert_array_equal(a[rank::ranks], b)


def test_one_image_a_batch_may_have_any_size(folder):
    path, _, _ = folder
    cv2.imwrite(str(path / "1.png"), np.zeros((3, 4, 3), np.uint8))
    cv2.imwrite(str(path / "l1.png"), np.zeros((3, 4), np.uint8))
    assert [b[0].shape for b in batches(dense(path, "batch_size: 1"), 3)] == [
        (1, 3, HEIGHT, WIDTH), (1, 3, 3, 4), (1, 3, HEIGHT, WIDTH)]
    with pytest.raises(DataError, match="the first one is"):
        batches(dense(path, "batch_size: 2"), 1)


def test_a_bad_pair_that_is_tolerated_is_replaced_by_the_next(folder):
    path, images, _ = folder
    (path / "l1.png").write_bytes(b"no image")
    said = []
    options = ReaderOptions(1, n_bad_allowed=1, on_bad=said.append)
    (found,) = batches(dense(path, "batch_size: 3"), 1, options=options)
    np.testing.assert_array_equal(found[0][1], np.moveaxis(images[2], -1, 0))
    assert len(said) == 1 and "l1.png" in said[0]
    with pytest.raises(DataError, match="l1.png"):
        batches(dense(path, "batch_size: 3"), 1)


@pytest.mark.parametrize(("make", "options", "transform", "said"), [
    (dense, "batch_size: 1", "mirror: true", "transform_param may do neither"), (dense, "", "", "batch_size"),
    (dense, "batch_size: 1 crop_width: 3", "", "go together"),
    (dense, "batch_size: 1 crop_width: 3 crop_height: 30", "", "larger than"),
    (dense, "batch_size: 1 rand_skip: 9", "", "leaves out"), (seg, "", "mean_file: 'x'", "not mean_file"),
    (seg, "", "crop_size: 2 crop_height: 2 crop_width: 2", "not both"), (seg, "", "scale_factors: 2", "with a crop"),
    (seg, "label_type: NONE", "mean_value: 1 mean_value: 2", "mean_value"),
    (seg, "label_type: IMAGE", "", "whole number")])
def test_what_cannot_be(folder, make, options, transform, said):
    with pytest.raises(DataError, match=said):
        batches(make(folder[0], options, transform), 1)


@pytest.mark.parametrize(("text", "said"), [("", "empty"), ("a.png\n", "list:1: expected an image and")])
def test_bad_lists(tmp_path, text, said):
    (tmp_path / "list").write_text(text)
    with pytest.raises(DataError, match=said):
        batches(dense(tmp_path, "batch_size: 1"), 1)


def test_other_readers_take_no_crop_of_two_sides(folder):
    param = text_format.Parse(f'type: "ImageData" image_data_param {{ source: "{folder[0]}/numbers" }} '
                              "transform_param { crop_height: 3 crop_width: 3 }", caffe_pb2.LayerParameter())
    with pytest.raises(DataError, match="crop_width"):
        batches(param, 1)
