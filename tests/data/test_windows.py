"""Window data: which windows a batch has, and how each is cut."""

from pathlib import Path

import numpy as np
import pytest

from scaffe.data.feeds.feed import Plan, ReaderOptions
from scaffe.data.feeds.window_feed import WindowOptions, window_feed
from scaffe.data.order.orders import InOrder
from scaffe.data.order.share import batch_elems, visits_in_training
from scaffe.data.records.transform import TransformOptions
from scaffe.data.sources.windows import read_windows
from scaffe.errors import DataError
from tests.data.databases import unlike_images

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
SIDE, BATCH, N_BACKGROUND = 11, 8, 5
BOXES = [[(1, 0.9, 2, 3, 20, 30), (2, 0.6, 0, 0, 9, 29), (1, 0.2, 5, 5, 8, 25), (3, 0.4, 1, 1, 2, 2)],
         [(4, 1.0, 30, 10, 39, 19), (1, 0.0, 0, 0, 39, 19), (2, 0.1, 12, 3, 30, 18)]]
SHAPES = [(32, 24, 3), (20, 40, 3)]


@pytest.fixture
def window_file(tmp_path):
    """Two images with windows, and their pixels."""
    images, text = [], ""
    for i, (boxes, shape) in enumerate(zip(BOXES, SHAPES, strict=True)):
        images.append(unlike_images(1, shape, seed=i)[0])
        cv2.imwrite(str(tmp_path / f"{i}.png"), images[-1])
        text += f"# {i}\n{i}.png\n3\n{shape[0]}\n{shape[1]}\n{len(boxes)}\n"
        text += "".join(" ".join(map(str, box)) + "\n" for box in boxes)
    (tmp_path / "windows.txt").write_text(text)
    return str(tmp_path / "windows.txt"), images


def take(path, n_batches, rank=0, ranks=1, pad=0, square=False, transform=TransformOptions(mirror=True), cache=False):  # noqa: B008
    """Copies of the first batches."""
    root = path.replace("windows.txt", "")
    options = WindowOptions(SIDE, pad, square, 0.5, 0.5, 0.3, 3 / 8, cache, root)
    plan = Plan(visits_in_training(BATCH, rank, ranks), batch_elems(BATCH, rank, ranks), InOrder(BATCH), seed=9)
    feed = window_feed(path, plan, transform, options, ReaderOptions(2))
    assert feed.shapes == [(batch_elems(BATCH, rank, ranks), 3, SIDE, SIDE), (batch_elems(BATCH, rank, ranks),)]
    batches = [[array.copy() for array in feed.next()] for _ in range(n_batches)]
    feed.close()
    return batches


def test_windows_are_sorted_by_overlap(window_file):
    windows = read_windows(window_file[0], "root/", 0.5, 0.3)
    assert windows.paths == ["root/0.png", "root/1.png"] and windows.n_channels == 3
    assert windows.foreground.tolist() == [[0, 1, 2, 3, 20, 30], [0, 2, 0, 0, 9, 29], [1, 4, 30, 10, 39, 19]]
    assert windows.background.tolist() == [[0, 0, 5, 5, 8, 25], [1, 0, 0, 0, 39, 19], [1, 0, 12, 3, 30, 18]]


@pytest.mark.parametrize("pad", [0, 2])
@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("mean", ["none", "values", "image"])
def test_windows_are_drawn_and_cut_as_in_caffe(window_file, pad, square, mean):
    from tests.reference.windows import cut

    path, images = window_file
    mean_image = np.random.default_rng(0).random((3, 15, 15), np.float32) if mean == "image" else None
    values = (10.0, 20.0, 30.0) if mean == "values" else ()
    means = mean_image[:, 2:13, 2:13] if mean == "image" else np.reshape(values or (0.0,), (-1, 1, 1))
    raw = iter(np.random.RandomState(9).randint(0, 1 << 32, 2 * 3 * BATCH, np.uint64))
    windows = read_windows(path, "", 0.5, 0.3)
    for found, labels in take(path, 3, 0, 1, pad, square, TransformOptions(1.0, True, 0, values, mean_image)):
        for place in range(BATCH):
            kind = windows.background if place < N_BACKGROUND else windows.foreground
            image, label, *box = kind[int(next(raw)) % len(kind)]
            pixels, mask = cut(images[image], box, SIDE, pad, square, bool(next(raw) % 2))
            expected = (pixels - np.moveaxis(np.broadcast_to(means, (3, SIDE, SIDE)), 0, -1).astype(np.float32)) * 0.5
            np.testing.assert_array_equal(found[place], np.where(mask[:, :, None], expected, 0))
            assert labels[place] == label


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_a_batch_out(window_file, ranks):
    alone = take(window_file[0], 3)
    for rank in range(ranks):
        for whole, part in zip(alone, take(window_file[0], 3, rank, ranks, cache=True), strict=True):
            for a, b in zip(whole, part, strict=True):
                np.testing.assert_array_equal(a[rank::ranks], b)


@pytest.mark.parametrize(("text", "message"), [
    ("", "no background window"), ("# 0\na.png 3 10", "breaks off within image 0"),
    ("# 1\na.png 3 1 1 0", "expected '# 0'"), ("# 0\na.png 3 9 x 1", "image 0"),
    ("# 0\na.png 3 9 9 1\n0 0.9 1 1 2 2", "label 0, not above 0"),
    ("# 0\na.png 3 9 9 1\n1 0.9 1 1 2 2", "no background"), ("# 0\na.png 3 9 9 1\n1 0.1 1 1 2 2", "no foreground"),
])
def test_bad_window_files_are_told(tmp_path, text, message):
    (tmp_path / "windows.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_windows(str(tmp_path / "windows.txt"), "", 0.5, 0.3)


def test_a_window_outside_its_image_is_told(window_file):
    path, _ = window_file
    Path(path).write_text(Path(path).read_text().replace("39", "90"))
    with pytest.raises(DataError, match=r"1\.png: the window .* lies outside the image of 20 x 40"):
        take(path, 5)
