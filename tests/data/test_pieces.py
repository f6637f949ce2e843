"""Batches made in pieces by several readers are those of one reader that makes them whole, bad and odd records too."""

import threading

import numpy as np
import pytest

from scaffe.data.feeds import feed as feed_module
from scaffe.data.feeds.feed import Plan, ReaderOptions, piece_rows
from scaffe.data.feeds.image_feed import image_feed
from scaffe.data.order.orders import InOrder
from scaffe.data.records.datum import encode_file, encode_floats, encode_image
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.errors import DataError
from tests.data.databases import write

cv2 = pytest.importorskip("cv2")


def record(kind, rng, i):
    """One record's value: of the usual shape as pixels, JPEG, PNG or floats; or odd, or bad."""
    image = rng.integers(0, 256, (12, 10, 3), np.uint8)
    if kind in ("jpeg", "png"):
        return encode_file(cv2.imencode(f".{kind}", image)[1].tobytes(), i)
    if kind == "floats":
        return encode_floats(rng.standard_normal((3, 12, 10)), i)
    if kind == "grey":
        return encode_image(image[None, :, :, 0], i)
    if kind == "large":
        return encode_file(cv2.imencode(".jpeg", rng.integers(0, 256, (17, 19, 3), np.uint8))[1].tobytes(), i)
    return {"garbage": b"\xff\xff\xff", "cut": encode_file(b"\xff\xd8\xff\xe0abc", i)}.get(
        kind, encode_image(np.moveaxis(image, -1, 0), i))


KINDS = {"pixels": 8, "jpeg": 8, "png": 2, "floats": 1, "grey": 0.3, "large": 1, "garbage": 0.3, "cut": 0.3}


def course(source, n_threads, case, monkeypatch):
    """All batches of a feed until its error, and that error."""
    monkeypatch.setattr(feed_module, "MOST_ROWS", case["rows"])
    told = []
    options = ReaderOptions(n_threads, n_bad_allowed=case["n_bad"], on_bad=told.append, gives_pixels=case["pixels"],
                            most_threads=case["most"] if n_threads else 0)
    visits = iter([np.arange(first, first + case["batch"]) for first in range(0, 6 * case["batch"], case["batch"])])
    found = []
    try:
        plan = Plan(visits, case["batch"], InOrder(source.n_records), 7)
        made = image_feed(source, plan, Transform(case["transform"]), options=options)
    except DataError as error:
        return found, str(error), []
    try:
        while True:
            found.append([array.copy() for array in made.next()])
    except StopIteration:
        return found, "", sorted(told)
    except DataError as error:
        return found, str(error), []
    finally:
        made.close()


@pytest.mark.parametrize("seed", range(60))
def test_any_number_of_readers_gives_the_same(tmp_path, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    chances = np.array(list(KINDS.values())) if seed % 3 else np.array([1, 1, 0, 0, 0, 0, 0, 0])
    kinds = rng.choice(list(KINDS), 23, p=chances / chances.sum())
    kinds[0] = "pixels"  # says what the feed gives
    source = LmdbSource(write(tmp_path / "db", [(b"%08d" % i, record(kind, rng, i)) for i, kind in enumerate(kinds)]))
    crop = int(rng.choice([0, 9]))
    case = {"rows": int(rng.integers(1, 4)), "n_bad": int(rng.choice([0, 50])), "pixels": bool(rng.integers(2)),
            "batch": int(rng.choice([1, 3, 8])), "most": int(rng.choice([0, 4])),
            "transform": TransformOptions(0.5, bool(rng.integers(2)), crop, (3.0,), random_crop=bool(crop))}
    expected, error, told = course(source, 0, case, monkeypatch)
    for n_threads in (1, 3):
        batches, error_found, told_found = course(source, n_threads, case, monkeypatch)
        assert (len(batches), error_found, told_found) == (len(expected), error, told)
        for arrays, expected_arrays in zip(batches, expected, strict=True):
            for array, wanted in zip(arrays, expected_arrays, strict=True):
                assert array.dtype == wanted.dtype
                np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("shape, depth, n_threads, expected", [
    ((64, 3, 227, 227), 4, 1, 32), ((256, 3, 227, 227), 4, 12, 32), ((64, 3, 227, 227), 4, 12, 10),
    ((16, 3, 227, 227), 4, 12, 2), ((1, 3, 500, 500), 4, 12, 1), ((64, 1, 28, 28), 4, 1, 83)])
def test_pieces_are_small_enough_for_all_readers(monkeypatch, shape, depth, n_threads, expected):
    monkeypatch.setattr(feed_module, "MOST_ROWS", 32)
    monkeypatch.setattr(feed_module, "PIECE_BYTES", 1 << 18)
    rows = piece_rows(shape, depth, n_threads)
    assert rows == expected
    assert n_threads == 1 or depth * -(-shape[0] // rows) >= n_threads or rows == 1


def test_twelve_readers_are_at_work_at_once(tmp_path, monkeypatch):
    """By Caffe's prefetch of 4, where a batch each would let four of them work."""
    from scaffe.data.records import datum

    monkeypatch.setattr(feed_module, "MOST_ROWS", 32)
    rng = np.random.default_rng(0)
    source = LmdbSource(write(tmp_path / "db", [(b"%08d" % i, record("jpeg", rng, i)) for i in range(16)]))
    decode, together, first = datum.decode, threading.Barrier(12), threading.Event()

    def waits(*arguments):
        if threading.current_thread().name.startswith("reader") and not first.is_set():
            together.wait(60)  # breaks unless twelve readers are here
            first.set()
        return decode(*arguments)

    monkeypatch.setattr(datum, "decode", waits)
    visits = iter([np.arange(first, first + 16) for first in range(0, 160, 16)])
    made = image_feed(source, Plan(visits, 16, InOrder(16)), Transform(TransformOptions()), 4, ReaderOptions(12))
    for _ in range(10):
        assert made.next()[1].tolist() == list(range(16))
    made.close()
