"""-decode gpu: readers decode into the device's memory what -decode host would decode, and the rest on the host."""

import re
import sys

import numpy as np
import pytest

from scaffe.cli import main as cli
from scaffe.data.convert.leveldb_writer import write_leveldb
from scaffe.data.convert.writers import write_lmdb
from scaffe.data.feeds.feed import Plan, ReaderOptions
from scaffe.data.feeds.image_feed import image_feed
from scaffe.data.feeds.layer_feed import open_layer_feed
from scaffe.data.order.orders import InOrder
from scaffe.data.order.share import TRAIN, Share
from scaffe.data.records.datum import encode_file, encode_floats, encode_image
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.database import open_database
from scaffe.errors import DataError
from scaffe.layers.kernels import cuda
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text
from tests import pretend
from tests.pretend import nvimgcodec
from tests.scaffe.runs import losses, write_solver

pytestmark = pretend.needs_compiler
cv2 = pytest.importorskip("cv2")
N_RECORDS, BATCH, N_BATCHES = 23, 6, 9
DB = 'type: "Data" data_param { source: "db" batch_size: %d prefetch: 2 }'
LIST = 'type: "ImageData" image_data_param { source: "list.txt" batch_size: %d }'
CROP = "transform_param { crop_size: 14 mirror: true scale: 0.5 mean_value: 100 mean_value: 110 mean_value: 120 }"


@pytest.fixture(autouse=True)
def cp(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return pretend.install(monkeypatch, with_decoder=True)


def picture(i, height=20, width=24):
    rng = np.random.default_rng(i)
    return cv2.resize(rng.integers(0, 256, (5, 6, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)


def jpeg(image, *options):
    return cv2.imencode(".jpg", image, list(options))[1].tobytes()


def records(mixed=False, sizes=((20, 24),)):
    """Datums of JPEG files; where mixed, others among them."""
    made = [encode_file(jpeg(picture(i, *sizes[i % len(sizes)])), i) for i in range(N_RECORDS)]
    if mixed:
        made[3] = encode_image(np.moveaxis(picture(3), 2, 0), 3)
        made[4] = encode_file(cv2.imencode(".png", picture(4))[1].tobytes(), 4)
        made[5] = encode_file(jpeg(picture(5), cv2.IMWRITE_JPEG_PROGRESSIVE, 1), 5)
        made[17] = encode_file(jpeg(picture(17))[:-2], 17)  # without its end
    return [(b"%08d" % i, value) for i, value in enumerate(made)]


def feed_of(text, on_device, n_threads=2, batch=BATCH, n_bad=0, on_bad=None, said=None):
    param = parse_text(f'name: "d" top: "data" top: "label" {text % batch}', caffe_pb2.LayerParameter)
    device = cuda.image_decoder() if on_device else None
    options = ReaderOptions(n_threads, 0, cuda.batch_allocator(), n_bad, on_bad, True, device=device,
                            on_host=(said if said is not None else []).append)
    numbers = iter(range(7, 99))
    return open_layer_feed(param, TRAIN, Share(), lambda: next(numbers), options)


def on_host(array):
    return array.get() if hasattr(array, "get") else array.copy()


def batches(feed, n=N_BATCHES):
    """The next batches on the host; whether their images came from the device."""
    found, places = [], []
    for _ in range(n):
        arrays = feed.next()
        places.append(not isinstance(arrays[0], np.ndarray))
        found.append([on_host(array) for array in arrays])
    feed.close()
    return found, places


def check_same(text, is_on_device=True, **options):
    expected, _ = batches(feed_of(text, False, 0, **options))
    for n_threads in (0, 1, 4):
        found, places = batches(feed_of(text, True, n_threads, **options))
        assert places == [is_on_device] * N_BATCHES
        for mine, others in zip(found, expected, strict=True):
            for one, other in zip(mine, others, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("text", [DB, LIST])
@pytest.mark.parametrize("transform", [CROP, "", "transform_param { mirror: true }"])
def test_batches_are_those_of_the_host(text, transform, tmp_path):
    if text == DB:
        write_lmdb(tmp_path / "db", records())
    else:
        for i in range(N_RECORDS):
            (tmp_path / f"{i}.jpg").write_bytes(jpeg(picture(i)))
        (tmp_path / "list.txt").write_text("".join(f"{i}.jpg {i}\n" for i in range(N_RECORDS)))
    check_same(f"{text} {transform}")
    assert len(nvimgcodec.Settings.threads) >= 3 * BATCH * N_BATCHES


@pytest.mark.parametrize("write", [write_lmdb, write_leveldb])
def test_what_is_no_plain_jpeg_file_is_decoded_on_the_host(write, tmp_path):
    write(tmp_path / "db", records(mixed=True))
    check_same(f"{DB} {CROP}")
    assert nvimgcodec.Settings.threads


def test_images_of_several_sizes_in_a_batch(tmp_path):
    write_lmdb(tmp_path / "db", records(sizes=((20, 24), (15, 40), (14, 14))))
    check_same(f"{DB} {CROP}")


def test_memory_on_the_device_is_counted(tmp_path):
    write_lmdb(tmp_path / "db", records())
    for on_device, n_bytes in ((False, 0), (True, 3 * BATCH * 14 * 14 * 3)):
        feed = feed_of(f"{DB} {CROP}", on_device)
        assert feed.device_bytes == n_bytes
        assert feed.batch_bytes == BATCH * (14 * 14 * 3 + 4 + 3 * 4)
        feed.close()


def test_a_batch_of_one_image_takes_its_size(tmp_path):
    write_lmdb(tmp_path / "db", records(mixed=True, sizes=((20, 24), (15, 40), (60, 50))))
    check_same(DB, batch=1)


def test_a_batch_with_floats_in_it_is_one_of_floats(tmp_path):
    values = records()
    grey = encode_image(picture(8)[None, :, :, 0], 8)
    values[8] = values[8][0], grey
    write_lmdb(tmp_path / "db", values)
    transform = "transform_param { crop_size: 14 mirror: true mean_value: 100 }"
    with pytest.raises(DataError) as expected:
        batches(feed_of(f"{DB} {transform}", False))
    with pytest.raises(DataError) as found:
        batches(feed_of(f"{DB} {transform}", True))
    assert str(found.value) == str(expected.value)
    floats = encode_floats(np.moveaxis(picture(8), 2, 0).astype(np.float32), 8)
    values[8] = values[8][0], floats
    write_lmdb(tmp_path / "db2", values)
    text = f"{DB} {transform}".replace('"db"', '"db2"')
    expected, _ = batches(feed_of(text, False))
    found, places = batches(feed_of(text, True))
    assert places.count(False) == sum(len(arrays) == 2 for arrays in expected) > 0
    for mine, others in zip(found, expected, strict=True):
        for one, other in zip(mine, others, strict=True):
            np.testing.assert_array_equal(one, other)


BAD = {"junk": b"\xffjunk", "no image": encode_file(b"no image at all", 1),
       "small": encode_file(jpeg(picture(1, 13, 40)), 1), "cut": encode_file(jpeg(picture(1))[:60], 1)}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_bad_record_is_named_as_on_the_host(bad, n_threads, tmp_path):
    values = records(mixed=True)
    values[10] = values[10][0], BAD[bad]
    values[11] = values[11][0], BAD["junk"]
    write_lmdb(tmp_path / "db", values)
    lines = []
    for on_device in (False, True):
        feed = feed_of(f"{DB} {CROP}", on_device, n_threads)
        assert len(batches_before_error(feed, lines)) == 1
    assert lines[0] == lines[1]
    assert "'00000010'" in lines[0]


def batches_before_error(feed, lines):
    found = []
    with pytest.raises(DataError) as error:
        while True:
            found.append(feed.next())
    lines.append(str(error.value))
    feed.close()
    return found


def test_bad_records_are_passed_over_as_on_the_host(tmp_path):
    values = records(mixed=True)
    for i, value in zip((2, 10, 11, 21), BAD.values(), strict=True):
        values[i] = values[i][0], value
    write_lmdb(tmp_path / "db", values)
    bad = []
    check_same(f"{DB} {CROP}", n_bad=4, on_bad=bad.append)
    assert len(set(bad)) == 4 and len(bad) == 16  # four feeds


def test_pieces_that_the_decoder_refuses_are_made_on_the_host_and_it_is_said(tmp_path):
    def refuse(call, file):
        if call % 2:
            raise RuntimeError("cudaErrorMemoryAllocation")
        return file.size % 3 == 0

    write_lmdb(tmp_path / "db", records())
    nvimgcodec.Settings.fault = staticmethod(refuse)
    check_same(f"{DB} {CROP}")
    said = []
    batches(feed_of(f"{DB} {CROP}", True, said=said))
    assert said == ["cudaErrorMemoryAllocation"]


@pytest.mark.parametrize(("text", "why"), [
    (f"{DB} transform_param {{ force_gray: true }}", "not made of plain JPEG files"),
    (LIST.replace("batch_size", "new_height: 9 new_width: 9 batch_size"), "cropped and not resized"),
    (LIST.replace("batch_size", "is_color: false batch_size"), "in colour"),
    ('type: "HDF5Data" top: "x" hdf5_data_param { source: "no.txt" batch_size: %d }', "of type HDF5Data")])
def test_layers_that_cannot_decode_there_say_why(text, why, tmp_path):
    write_lmdb(tmp_path / "db", records())
    (tmp_path / "a.jpg").write_bytes(jpeg(picture(1)))
    (tmp_path / "list.txt").write_text("a.jpg 1\n")
    said = []
    if "HDF5" in text:
        with pytest.raises(DataError):
            feed_of(text, True, said=said)
    else:
        _, places = batches(feed_of(text, True, said=said), 1)
        assert places == [False]
    assert len(said) == 1 and why in said[0]


def test_a_rank_without_samples(tmp_path):
    """More ranks than a batch has samples."""
    write_lmdb(tmp_path / "db", records())
    source = open_database("db")
    plan = Plan(iter([np.zeros(0, np.int64)] * 3), 0, InOrder(source.n_records))
    feed = image_feed(source, plan, Transform(TransformOptions(crop_size=14)),
                      options=ReaderOptions(2, gives_pixels=True, device=cuda.image_decoder()))
    for _ in range(3):
        assert [array.shape for array in feed.next()] == [(0, 14, 14, 3), (0,), (0, 3)]
    feed.close()


def test_closing_in_the_middle_hangs_nothing(tmp_path):
    write_lmdb(tmp_path / "db", records(mixed=True))
    for n in range(4):
        feed = feed_of(f"{DB} {CROP}", True, 3)
        for _ in range(n):
            feed.next()
        feed.close()
        feed.close()


NET = """layer { name: "d" %s top: "data" top: "label" }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4
        weight_filler { type: "gaussian" std: 0.001 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""


@pytest.fixture
def train(tmp_path, capfd):
    """Runs train; gives what it logged, and the bytes of the trained weights."""
    write_lmdb(tmp_path / "db", labelled(records(mixed=True)))
    write_solver(tmp_path, NET % f"{DB % BATCH} {CROP}", test_iter=None, test_interval=0, max_iter=8, base_lr=1e-4,
                 display=1, snapshot=8, snapshot_prefix=str(tmp_path / "run"))

    def run(*flags):
        assert cli.main(["train", "-solver", "solver.prototxt", *flags]) == 0
        return capfd.readouterr().err, (tmp_path / "run_iter_8.caffemodel").read_bytes()
    return run


def labelled(values):
    """The same with labels below 4."""
    made = []
    for key, value in values:
        message = caffe_pb2.Datum.FromString(value)
        message.label %= 4
        made.append((key, message.SerializeToString()))
    return made


def told(text):
    return [line for line in text.splitlines() if "-decode gpu" in line]


def test_training_gives_the_same_bits(train):
    with pretend.deferring():
        here, there = train("-gpu", "0"), train("-gpu", "0", "-decode", "gpu", "-readers", "3")
    assert losses(here[0]) == losses(there[0]) and len(losses(here[0])) > 1
    assert here[1] == there[1]
    assert nvimgcodec.Settings.threads and not told(there[0])


def test_without_a_decoder_one_line_says_why(train, monkeypatch):
    _, expected = train("-gpu", "0")
    nvimgcodec.Settings.fault = staticmethod(lambda call, file: True)
    text, found = train("-gpu", "0", "-decode", "gpu")
    assert found == expected
    assert [re.sub(".*] ", "", line) for line in told(text)] == [
        "-decode gpu: images are decoded on the host: the decoder cannot be used: it decodes no JPEG file"]
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", None)
    text, found = train("-gpu", "0", "-decode", "gpu")
    assert found == expected
    assert len(told(text)) == 1 and "nvidia.nvimgcodec cannot be imported" in text
    text, _ = train("-decode", "gpu", "-threads", "auto")  # whose trial says nothing
    assert len(told(text)) == 1 and "the net computes on the CPU" in text


def test_the_test_command_decodes_there_too(train, tmp_path, capfd):
    train("-gpu", "0")
    transform = CROP.replace("mirror: true", "")  # which would be drawn anew in each run
    (tmp_path / "test.prototxt").write_text(NET % f"{DB % BATCH} {transform}")
    said = []
    for place in ("host", "gpu"):
        nvimgcodec.Settings.threads.clear()
        assert cli.main(["test", "-model", "test.prototxt", "-weights", "run_iter_8.caffemodel", "-gpu", "0",
                         "-iterations", "5", "-decode", place]) == 0
        said.append(re.findall("Batch .*|loss = .*", capfd.readouterr().err))
        assert bool(nvimgcodec.Settings.threads) == (place == "gpu")
    assert said[0] == said[1]
