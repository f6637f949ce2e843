"""The mean of a database's samples, to the bit the one that a loop over the records gives, on any number of threads."""

from math import prod

import numpy as np
import pytest

from scaffe.data.convert import mean
from scaffe.data.convert.mean import MOST_SAMPLES, mean_image
from scaffe.data.kernels.images import add_samples
from scaffe.data.records.datum import encode_file, encode_floats, encode_image
from scaffe.data.sources.database import open_database
from scaffe.errors import DataError
from tests.data.databases import unlike_images, write

SHAPE = (3, 5, 7)
RNG = np.random.default_rng(0)


def naively(samples):
    """Each number added to a sum in double precision, one record after another."""
    sums = np.zeros(samples[0].shape)
    for sample in samples:
        sums += sample.astype(np.float64)
    return (sums / len(samples)).astype(np.float32)


def as_bytes(n):
    images = unlike_images(n, SHAPE, n)
    return list(images), [encode_image(image, 0) for image in images]


def as_files(n):
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    images = unlike_images(n, SHAPE, n)
    files = [cv2.imencode(".png", np.ascontiguousarray(np.moveaxis(image, 0, -1)))[1].tobytes() for image in images]
    return list(images), [encode_file(file, 0) for file in files]


def as_floats(n):
    arrays = (RNG.standard_normal((n, *SHAPE)) * 10.0 ** RNG.integers(-12, 12, (n, *SHAPE))).astype(np.float32)
    return list(arrays), [encode_floats(array, 0) for array in arrays]


def database(tmp_path, *parts):
    """A source of these records, and the records' samples."""
    samples, records = ([each for part in parts for each in part[i]] for i in range(2))
    write(tmp_path / "db", [(b"%08d" % i, record) for i, record in enumerate(records)])
    return open_database(str(tmp_path / "db")), samples


KINDS = {
    "bytes": lambda: [as_bytes(700)], "one": lambda: [as_bytes(1)], "files": lambda: [as_files(300)],
    "files among bytes": lambda: [as_bytes(40), as_files(20), as_bytes(300)], "floats": lambda: [as_floats(300)],
    "floats behind bytes": lambda: [as_bytes(150), as_floats(3), as_bytes(150), as_floats(40), as_files(9)],
    "bytes behind floats": lambda: [as_floats(60), as_files(5), as_bytes(90), as_floats(1), as_bytes(5)]}


@pytest.mark.parametrize("n_at_once", [1, 20, MOST_SAMPLES])
@pytest.mark.parametrize("kind", KINDS)
def test_mean_is_that_of_a_loop(tmp_path, monkeypatch, kind, n_at_once):
    source, samples = database(tmp_path, *KINDS[kind]())
    monkeypatch.setattr(mean, "BYTES_AT_ONCE", n_at_once * prod(SHAPE) * samples[0].itemsize)
    expected = naively(samples)
    for n_threads in (1, 2, 5):
        found = mean_image(source, n_threads)
        assert (found.dtype, found.shape, found.tobytes()) == (np.float32, SHAPE, expected.tobytes())


def test_the_brightest_images_fit():
    pixels, sums = np.full(10, 255, np.uint8), np.zeros(10, np.uint16)
    pixels.flags.writeable = False
    add_samples(pixels, np.zeros(MOST_SAMPLES, np.int64), sums)
    assert (sums == MOST_SAMPLES * 255).all()


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("at", "record", "line"), [
    (0, b"no Datum", "record '00000000' is not a Datum"), (270, b"no Datum", "record '00000270' is not a Datum"),
    (299, encode_image(np.zeros((3, 7, 5), np.uint8), 0), r"'00000299' has the shape \(3, 7, 5\), the first"),
    (31, encode_floats(np.zeros((1, 5, 7), np.float32), 0), r"'00000031' has the shape \(1, 5, 7\), the first record")])
def test_the_first_wrong_record_is_told(tmp_path, monkeypatch, n_threads, at, record, line):
    samples, records = as_bytes(300)
    for i in (at, 299):
        records[i] = record
    source, _ = database(tmp_path, (samples, records))
    monkeypatch.setattr(mean, "BYTES_AT_ONCE", 20 * prod(SHAPE))
    with pytest.raises(DataError, match=line):
        mean_image(source, n_threads)
