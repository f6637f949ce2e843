"""Image files: lists, compressed records, bad ones passed over. Pixels are checked against OpenCV's own."""

import itertools

import numpy as np
import pytest

from scaffe.data.feeds.feed import Plan, ReaderOptions
from scaffe.data.feeds.image_feed import image_feed
from scaffe.data.order.orders import InOrder
from scaffe.data.order.share import visits_in_training
from scaffe.data.records.datum import encode_file
from scaffe.data.records.decode import Colour
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.image_list import ImageListSource, read_list
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.errors import DataError
from tests.data.databases import datum, unlike_images, write

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four colour images of 12 x 10 (two JPEG, two PNG), a grey one, and a list of the four."""
    folder = tmp_path_factory.mktemp("pictures")
    names = ["a.jpg", "b b.jpg", "c.png", "d.png"]
    for name, image in zip(names, unlike_images(4, (12, 10, 3)), strict=True):
        cv2.imwrite(str(folder / name), cv2.GaussianBlur(image, (3, 3), 0))
    cv2.imwrite(str(folder / "grey.png"), unlike_images(1, (12, 10))[0])
    (folder / "list.txt").write_text("".join(f"{name} {7 - i}\n" for i, name in enumerate(names)))
    return folder


def pixels_of(run):
    """The image of a run of one, (height, width, channels)."""
    channels, height, width = run.shape
    assert run.interleaved
    return run.pixels[run.starts[0]:].reshape(height, width, channels)


@pytest.mark.parametrize("is_colour", [True, False])
def test_a_list_gives_opencvs_pixels(folder, is_colour):
    source = ImageListSource(folder / "list.txt", f"{folder}/", is_colour=is_colour)
    names = ["a.jpg", "b b.jpg", "c.png", "d.png"]
    (run,) = source.read(np.arange(4))  # of one size
    images = run.pixels.reshape(4, 12, 10, -1)
    for name, image in zip(names, images, strict=True):
        expected = cv2.imread(str(folder / name), cv2.IMREAD_COLOR if is_colour else cv2.IMREAD_GRAYSCALE)
        np.testing.assert_array_equal(image, expected.reshape(12, 10, -1))
    assert run.labels.tolist() == [7, 6, 5, 4]


def test_images_are_resized_as_opencv_does(folder):
    run = next(ImageListSource(folder / "list.txt", f"{folder}/", 7, 9).read(np.array([2])))
    np.testing.assert_array_equal(pixels_of(run), cv2.resize(cv2.imread(str(folder / "c.png")), (9, 7)))


@pytest.mark.parametrize("colour", Colour)
@pytest.mark.parametrize("name", ["a.jpg", "c.png", "grey.png"])
def test_compressed_records_give_opencvs_pixels(folder, tmp_path, colour, name):
    content = (folder / name).read_bytes()
    write(tmp_path / "db", [(b"a", encode_file(content, 4))])
    (run,) = LmdbSource(tmp_path / "db", colour).read(np.array([0]))
    expected = cv2.imdecode(np.frombuffer(content, np.uint8), int(colour))
    np.testing.assert_array_equal(pixels_of(run), expected.reshape(12, 10, -1))
    assert run.labels[0] == 4


def test_lists_are_split_at_the_last_space(tmp_path):
    (tmp_path / "list").write_text("a b.jpg 3\n\nc.jpg -1\nalone.jpg\n")
    names, labels = read_list(tmp_path / "list")
    assert names == ["a b.jpg", "c.jpg", "alone.jpg"] and labels.tolist() == [3, -1, 0]


def test_blanks_before_the_label_and_a_byte_order_mark_are_no_part_of_a_name(tmp_path):
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbfa.jpg 1\nb b.jpg  \t 2\n\n c.jpg   3\n")
    names, labels = read_list(tmp_path / "list")
    assert names == ["a.jpg", "b b.jpg", " c.jpg"] and labels.tolist() == [1, 2, 3]
    names, labels = read_list(tmp_path / "list", keeps_empty=True)
    assert names == ["a.jpg", "b b.jpg", "", " c.jpg"] and labels.tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize(("text", "message"), [("", "the list is empty"), ("a.jpg 1\nb.jpg x\n", "list:2: .*'x'")])
def test_bad_lists_are_told(tmp_path, text, message):
    (tmp_path / "list").write_text(text)
    with pytest.raises(DataError, match=message):
        read_list(tmp_path / "list")


def test_missing_and_broken_images_are_told(tmp_path):
    (tmp_path / "text.jpg").write_text("no image")
    cv2.imwrite(str(tmp_path / "deep.png"), np.zeros((4, 4), np.uint16))
    (tmp_path / "list").write_text("absent.jpg 0\ntext.jpg 0\ndeep.png 0\n")
    source = ImageListSource(tmp_path / "list", f"{tmp_path}/", is_colour=True)
    for record, message in ((0, "absent.jpg: No such file"), (1, "text.jpg: not an image")):
        with pytest.raises(DataError, match=message):
            next(source.read(np.array([record])))


def test_one_side_alone_cannot_be_resized(folder):
    with pytest.raises(DataError, match="go together"):
        ImageListSource(folder / "list.txt", height=3)


def open_feed(folder, options, n_records=6):
    """A feed in batches of 4 over raw records of which 1 and 4 are broken."""
    images = unlike_images(n_records)
    records = [(b"%d" % i, b"junk" if i in (1, 4) else datum(image, i)) for i, image in enumerate(images)]
    source = LmdbSource(write(folder / "db", records))
    plan = Plan(visits_in_training(4, 0, 1), 4, InOrder(n_records))
    return image_feed(source, plan, Transform(TransformOptions()), options=options), images


@pytest.mark.parametrize("n_threads", [0, 1, 3])
def test_bad_records_are_replaced_by_the_next(tmp_path, n_threads):
    told = []
    feed, images = open_feed(tmp_path, ReaderOptions(n_threads, n_bad_allowed=2, on_bad=told.append))
    for expected in ([0, 2, 2, 3], [5, 5, 0, 2], [2, 3, 5, 5]):
        found, labels = feed.next()
        assert labels.tolist() == expected
        np.testing.assert_array_equal(np.moveaxis(found, -1, 1), images[expected])
    feed.close()
    assert sorted(told) == [line for key in "14" for line in told if f"record '{key}'" in line] and len(told) == 2


@pytest.mark.parametrize("n_bad_allowed", [0, 1])
def test_too_many_bad_records_end_the_feed(tmp_path, n_bad_allowed):
    with pytest.raises(DataError, match="is not a Datum"):
        feed, _ = open_feed(tmp_path, ReaderOptions(1, n_bad_allowed=n_bad_allowed))
        for _ in range(3):
            feed.next()


def test_all_records_bad_is_an_error_and_no_hang(tmp_path):
    source = LmdbSource(write(tmp_path / "db", [(b"a", b"junk"), (b"b", b"junk")]))
    plan = Plan(itertools.repeat(np.arange(2)), 2, InOrder(2))
    with pytest.raises(DataError):
        image_feed(source, plan, Transform(TransformOptions()), options=ReaderOptions(n_bad_allowed=100))


@pytest.mark.parametrize("odd", [[0], [0, 5], [3, 4]])
def test_the_shape_that_most_records_have_counts(tmp_path, odd):
    """Be the odd ones first in the data, first in a batch, or half of it."""
    records = [(b"%d" % i, datum(unlike_images(1, (1, 3, 3 if i in odd else 2))[0], i)) for i in range(9)]
    source = LmdbSource(write(tmp_path / "db", records))
    plan = Plan(visits_in_training(2, 0, 1), 2, InOrder(9))
    told = []
    feed = image_feed(source, plan, Transform(TransformOptions()),
                      options=ReaderOptions(1, n_bad_allowed=2, on_bad=told.append))
    assert feed.shapes[0] == (2, 1, 3, 2)
    labels = np.concatenate([feed.next()[1].copy() for _ in range(4)]).tolist()  # each is valid until the next call
    feed.close()
    assert not set(labels) & set(odd) and set(labels) >= set(range(8)) - set(odd)
    assert len(told) == len(odd)
