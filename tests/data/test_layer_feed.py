"""From LayerParameter messages to feeds: options, shares and the draws that Caffe takes."""

from itertools import count

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.data.feeds.layer_feed import TEST, TRAIN, ReaderOptions, Share, layer_batch_size, open_layer_feed
from scaffe.data.feeds.parameters import read_mean
from scaffe.data.order.orders import shuffled
from scaffe.errors import DataError
from scaffe.layers.base.context import Context
from scaffe.layers.data.data import Data
from scaffe.layers.kernels import cpu
from scaffe.proto import caffe_pb2
from tests.data.databases import unlike_images
from tests.reference.transform import transform_one


def layer(text):
    """A LayerParameter from its text."""
    return text_format.Parse(text, caffe_pb2.LayerParameter())


def data_layer(database, extra="", batch=4):
    """A Data layer over the database."""
    source = f'source: "{database}" batch_size: {batch}'
    return layer(f'type: "Data" data_param {{ {source} }} transform_param {{ {extra} }}')


def open_feed(param, phase=TRAIN, share=None, draw=None, n_threads=0):
    """Its feed; draws count up from 0 unless given."""
    return open_layer_feed(param, phase, share or Share(), draw or count().__next__, ReaderOptions(n_threads))


def visits_of(feed, n_batches):
    """Labels of the fixture's records, as record numbers."""
    found = [(feed.next()[1] / 3).astype(int).tolist() for _ in range(n_batches)]
    feed.close()
    return found


@pytest.mark.parametrize(("share", "expected"), [
    (Share(), [[0, 1, 2, 3], [4, 5, 6, 7]]), (Share(1, 2), [[1, 3], [5, 7]]),
    (Share(1, 2, weak=True), [[1, 3, 5, 7], [9, 11, 13, 15]]), (Share(first_batch=9), [[36, 0, 1, 2], [3, 4, 5, 6]]),
    (Share(2, 3, first_batch=1), [[6], [10]]),
])
def test_training_shares(database, share, expected):
    feed = open_feed(data_layer(database), share=share)
    assert feed.shapes == [(len(expected[0]), 1, 4, 5), (len(expected[0]),)]
    assert visits_of(feed, 2) == expected


@pytest.mark.parametrize(("share", "batch", "fault", "is_uneven"), [
    (Share(0, 3), 64, "", True), (Share(0, 4), 64, "", False), (Share(0, 3, weak=True), 2, "", False),
    (Share(0, 3, portion=0), 2, "", False), (Share(0, 3), 3, "", False),
    (Share(0, 3), 2, "batch_size 2 is less than one image for each of 3 ranks", True),
    (Share(0, 6, sharing=2), 64, "", True), (Share(0, 6, sharing=2, weak=True), 63, "", False),
    (Share(0, 6, sharing=2), 63, "batch_size 63 is not divisible by 2 ranks that share a replica (-partitions)", True),
])
def test_what_batches_can_be_shared_out(share, batch, fault, is_uneven):
    assert share.fault(batch) == fault
    share.batch = batch
    assert share.is_uneven == is_uneven


@pytest.mark.parametrize(("share", "expected"), [
    (Share(1, 3), [[0, 1, 2, 3], [4, 5, 6, 7]]), (Share(1, 2, n_test_iterations=3), [[4, 5, 6, 7], [16, 17, 18, 19]]),
    (Share(0, 2, weak=True, n_test_iterations=3, first_test=1), [[12, 13, 14, 15], [20, 21, 22, 23]]),
])
def test_testing_shares(database, share, expected):
    assert visits_of(open_feed(data_layer(database), TEST, share), 2) == expected


@pytest.mark.parametrize("gives_pixels", [False, True])
def test_a_batch_has_the_bytes_that_its_layer_says(database, gives_pixels):
    feeds = []

    def opened(param, context):
        reading = ReaderOptions(0, gives_pixels=gives_pixels)
        feeds.append(open_layer_feed(param, TRAIN, Share(), count().__next__, reading))
        return feeds[0]

    made = Data(data_layer(database, "crop_size: 3"), Context(TRAIN, cpu, open_feed=opened))
    made.setup([], [])
    assert made.batch_bytes == sum(array.nbytes for array in feeds[0].next()) == 4 * (
        9 + 4 + 3 * 4 if gives_pixels else 4 * 9 + 4)
    made.close()


@pytest.mark.parametrize(("n_threads", "prefetch", "n_batches"), [(0, 4, 1), (1, 4, 5), (2, 2, 3)])
def test_a_feed_holds_as_many_batches_as_it_says(database, n_threads, prefetch, n_batches):
    param = data_layer(database)
    param.data_param.prefetch = prefetch
    feed = open_feed(param, n_threads=n_threads)
    assert len({feed.next()[0].ctypes.data for _ in range(3 * n_batches)}) == feed.n_batches == n_batches
    made = Data(param, Context(TRAIN, cpu, open_feed=lambda *given: feed))
    made.setup([], [])
    assert made.read_bytes == n_batches * made.batch_bytes
    made.close()


def test_a_share_may_be_moved_until_the_first_batch(database):
    share = Share()
    feed = open_feed(data_layer(database), share=share)
    share.first_batch = 2
    assert visits_of(feed, 1) == [[8, 9, 10, 11]]


@pytest.mark.parametrize(("extra", "phase", "n_draws"), [
    ("", TRAIN, 1), ("crop_size: 3", TEST, 1), ("crop_size: 3", TRAIN, 3), ("mirror: true", TEST, 3),
    ("crop_size: 3 mirror: true", TRAIN, 3),
])
def test_as_many_draws_are_taken_as_in_caffe(database, extra, phase, n_draws):
    draws = count()
    open_feed(data_layer(database, extra), phase, draw=draws.__next__).close()
    assert next(draws) == n_draws


def test_crops_and_mirrors_come_from_the_second_draw(database, images):
    """Caffe's order for each visit: mirror, row, column."""
    feed = open_feed(data_layer(database, "crop_size: 2 mirror: true scale: 0.25"), draw=iter([11, 22, 33]).__next__)
    raw = np.random.RandomState(22).randint(0, 1 << 32, (8, 3), np.uint64).astype(int)
    for batch in range(2):
        found, _ = feed.next()
        for i in range(4):
            mirror, row, column = raw[4 * batch + i]
            expected = transform_one(images[4 * batch + i], 0.25, None, (row % 3, column % 4, 2), mirror % 2 == 1)
            np.testing.assert_array_equal(np.moveaxis(found[i], -1, 0), expected)


def test_a_mean_file_is_subtracted(database, images, tmp_path):
    mean = np.random.default_rng(0).random((1, 4, 5), np.float32)
    blob = caffe_pb2.BlobProto(num=1, channels=1, height=4, width=5, data=mean.reshape(-1))
    (tmp_path / "mean.binaryproto").write_bytes(blob.SerializeToString())
    feed = open_feed(data_layer(database, f'mean_file: "{tmp_path}/mean.binaryproto"'), TEST)
    np.testing.assert_array_equal(np.moveaxis(feed.next()[0], -1, 1), images[:4].astype(np.float32) - mean)


@pytest.mark.parametrize(("content", "message"), [
    (None, "No such file"), (b"\xff\xff\xff", "not a BlobProto"),
    (caffe_pb2.BlobProto(num=1, channels=1, height=2, width=2, data=[1]).SerializeToString(), "found 1 values"),
])
def test_bad_mean_files_are_told(tmp_path, content, message):
    if content is not None:
        (tmp_path / "mean").write_bytes(content)
    with pytest.raises(DataError, match=f"^mean file .*{message}"):
        read_mean(str(tmp_path / "mean"))


def test_what_is_wrong_is_told(database):
    for param, message in ((data_layer(database, batch=0), "batch_size must be at least 1"),
                           (data_layer("/absent"), "/absent: no such file or folder"),
                           (layer('type: "Data" data_param { batch_size: 1 }'), "needs a source"),
                           (data_layer(database, "force_color: true force_gray: true"), "not both"),
                           (data_layer(database, 'mean_value: 1 mean_file: "x"'), "No such file"),
                           (layer('type: "ReLU"'), "no feed for layers of type 'ReLU'")):
        with pytest.raises(DataError, match=message):
            open_feed(param)


@pytest.fixture
def pictures(tmp_path):
    """Seven PNG files and their list; picture i has the label i."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    images = unlike_images(7, (6, 8, 3))
    for i, image in enumerate(images):
        cv2.imwrite(str(tmp_path / f"{i}.png"), image)
    (tmp_path / "list.txt").write_text("".join(f"{i}.png {i}\n" for i in range(7)))
    return tmp_path, images


def image_layer(folder, extra="", transform=""):
    """An ImageData layer over the list."""
    source = f'source: "{folder}/list.txt" root_folder: "{folder}/" batch_size: 3'
    return layer(f'type: "ImageData" image_data_param {{ {source} {extra} }} transform_param {{ {transform} }}')


def test_image_data_in_order(pictures):
    folder, images = pictures
    feed = open_feed(image_layer(folder))
    assert feed.shapes == [(3, 3, 6, 8), (3,)]
    for expected in ([0, 1, 2], [3, 4, 5], [6, 0, 1]):
        found, labels = feed.next()
        np.testing.assert_array_equal(found, images[expected])
        assert labels.tolist() == expected


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_image_data_is_shuffled_alike_on_all_ranks(pictures, ranks):
    folder, _ = pictures
    expected = shuffled(7, 5, skip=0).records(np.arange(12)).reshape(4, 3)
    for rank in range(ranks):
        feed = open_feed(image_layer(folder, "shuffle: true"), share=Share(rank, ranks), draw=iter([5, 6]).__next__)
        for batch in expected:
            assert feed.next()[1].tolist() == batch[rank::ranks].tolist()


def test_image_data_takes_caffes_draws_in_caffes_order(pictures):
    """Transformer, shuffle, skip, transformer again, thread."""
    folder, _ = pictures
    draws = iter([1, 5, 12, 22, 3])
    feed = open_feed(image_layer(folder, "shuffle: true rand_skip: 5", "mirror: true"), draw=draws.__next__)
    assert next(draws, None) is None
    expected = shuffled(7, 5, skip=12 % 5).records(np.arange(3))
    found, labels = feed.next()
    assert labels.tolist() == expected.tolist()
    flips = np.random.RandomState(22).randint(0, 1 << 32, 3, np.uint64) % 2 == 1
    for image, record, flip in zip(found, expected, flips, strict=True):
        pixels = pictures[1][record]
        np.testing.assert_array_equal(image, pixels[:, ::-1] if flip else pixels)


def test_hdf5_data_refuses_a_transformation():
    with pytest.raises(DataError, match="transform_param must not be given"):
        open_feed(layer('type: "HDF5Data" transform_param { scale: 2 } hdf5_data_param { source: "x" batch_size: 1 }'))


def test_window_data_wants_a_crop():
    with pytest.raises(DataError, match="crop_size"):
        open_feed(layer('type: "WindowData" window_data_param { source: "x" batch_size: 1 }'))


@pytest.mark.parametrize(("kind", "field"), [("Data", "data_param"), ("ImageData", "image_data_param"),
                                             ("HDF5Data", "hdf5_data_param"), ("WindowData", "window_data_param")])
def test_the_batch_size_is_found_wherever_it_is(kind, field):
    assert layer_batch_size(layer(f'type: "{kind}" {field} {{ batch_size: 7 }}')) == 7
