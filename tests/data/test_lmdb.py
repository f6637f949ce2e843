"""LMDB read in place, against the lmdb library; damaged files are one clear line, never a fault."""

import lmdb
import numpy as np
import pytest

from scaffe.data.records.datum import encode_file, encode_floats, encode_image
from scaffe.data.sources.lmdb import LmdbFile, LmdbSource
from scaffe.errors import DataError
from tests.data.databases import datum, unlike_images, write


def by_library(folder):
    """All (key, value) pairs as the library gives them."""
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin() as transaction:
        return list(transaction.cursor())


def by_us(folder):
    """The same from our reader."""
    file = LmdbFile(folder)
    return [(file.key(i), file.value(i).tobytes()) for i in range(len(file))]


@pytest.mark.parametrize(("n_records", "n_bytes"),
                         [(1, 10), (3, 5000), (2000, 0), (20000, 40), (300, 2030), (40, 70000)])
def test_any_tree_is_read_as_the_library_reads_it(tmp_path, n_records, n_bytes):
    """From one leaf to three levels; values inside the page, on its limit, and on pages of their own."""
    rng = np.random.default_rng(n_records)
    keys = rng.permutation(10 * n_records)[:n_records]
    write(tmp_path / "db", [(b"key%x" % key, rng.bytes(n_bytes + int(key) % 9)) for key in keys])
    assert by_us(tmp_path / "db") == by_library(tmp_path / "db")


def test_after_deletions_and_rewrites(tmp_path):
    write(tmp_path / "db", [(b"%05d" % i, bytes(200)) for i in range(3000)])
    with lmdb.open(str(tmp_path / "db"), map_size=1 << 28) as env:
        for first in (0, 1, 2):
            with env.begin(write=True) as transaction:
                for i in range(first, 3000, 7):
                    transaction.delete(b"%05d" % i)
                for i in range(first, 3000, 11):
                    transaction.put(b"%05d" % i, bytes([first]) * (i % 6000))
    assert by_us(tmp_path / "db") == by_library(tmp_path / "db")


def test_a_lone_file_is_a_database_too(tmp_path):
    write(tmp_path / "db.mdb", [(b"a", b"1"), (b"b", b"2")], subdir=False)
    assert by_us(tmp_path / "db.mdb") == [(b"a", b"1"), (b"b", b"2")]


def test_a_batch_of_pixels_is_one_run_where_they_lie(database, images):
    records = np.array([36, 0, 17, 17])
    (run,) = LmdbSource(database).read(records)
    assert run.shape == (1, 4, 5) and not run.interleaved
    found = [run.pixels[start:start + 20].reshape(1, 4, 5) for start in run.starts]
    np.testing.assert_array_equal(found, images[records])
    np.testing.assert_array_equal(run.labels, 3 * records)


def test_floats_and_pixels_of_many_shapes(tmp_path):
    floats, negative = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 2, 2), unlike_images(1, (2, 3, 1))[0]
    packed = b"\x08\x03\x10\x02\x18\x02\x32\x30" + floats.tobytes()
    write(tmp_path / "db", [(b"a", encode_floats(floats, 5)), (b"b", encode_image(negative, -2)), (b"c", packed)])
    runs = list(LmdbSource(tmp_path / "db").read(np.arange(3)))
    assert [run.shape for run in runs] == [(3, 2, 2), (2, 3, 1), (3, 2, 2)]
    assert [run.labels[0] for run in runs] == [5, -2, 0]
    for run, expected in zip(runs, (floats, negative, floats), strict=True):
        start = run.starts[0]
        np.testing.assert_array_equal(run.pixels[start:start + expected.size].reshape(expected.shape), expected)


def test_fields_in_any_order_and_unknown_ones(tmp_path):
    image = unlike_images(1, (1, 2, 3))[0]
    unknown = b"\xf8\x01\x07" + b"\xfd\x01abcd" + b"\xf9\x01abcdefgh" + b"\xfa\x01\x02xy"
    record = b"\x28\x09" + unknown + b"\x22\x06" + image.tobytes() + b"\x18\x03\x10\x02\x08\x01" + unknown
    write(tmp_path / "db", [(b"a", record)])
    (run,) = LmdbSource(tmp_path / "db").read(np.array([0]))
    assert run.shape == (1, 2, 3) and run.labels[0] == 9
    np.testing.assert_array_equal(run.pixels[run.starts[0]:run.starts[0] + 6], image.reshape(-1))


@pytest.mark.parametrize(("record", "message"), [
    (b"", "has the shape 0 x 0 x 0"),
    (b"\xff" * 12, "is not a Datum"),
    (datum(unlike_images(1)[0], 1)[:-5], "is not a Datum"),
    (b"\x08\x01\x10\x02\x18\x02\x22\x03abc", "1 x 2 x 2 values expected, found 3"),
    (b"\x22\x03abc", "has the shape 0 x 0 x 0"),
])
def test_a_bad_record_is_named(tmp_path, record, message):
    write(tmp_path / "db", [(b"good", datum(unlike_images(1)[0], 1)), (b"theKey", record)])
    with pytest.raises(DataError, match=f"record 'theKey'.*{message}") as caught:
        list(LmdbSource(tmp_path / "db").read(np.array([0, 1])))
    assert "\n" not in str(caught.value)


def test_missing_empty_and_foreign_files_are_told(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("not a database " * 1000)
    (tmp_path / "nothing").touch()
    write(tmp_path / "empty", [])
    for name, message in (("absent", "no such file or folder"), ("folder", "has no data.mdb"), ("nothing", "no bytes"),
                          ("text", "expected an LMDB"), ("empty", "the database is empty")):
        with pytest.raises(DataError, match=f"{name}: .*{message}"):
            LmdbFile(tmp_path / name)


def test_a_file_cut_short_anywhere_is_told(tmp_path):
    write(tmp_path / "db", [(b"%05d" % i, bytes(300)) for i in range(500)])
    whole = (tmp_path / "db" / "data.mdb").read_bytes()
    for n_bytes in (1, 100, 4096, 5000, 8192, len(whole) // 2, len(whole) - 4096):
        (tmp_path / "db" / "data.mdb").write_bytes(whole[:n_bytes])
        with pytest.raises(DataError):
            LmdbFile(tmp_path / "db")


def test_damage_anywhere_never_faults(tmp_path):
    """Pages overwritten with noise: either told, or other bytes come back; the process lives."""
    write(tmp_path / "db", [(b"%05d" % i, datum(unlike_images(1, (1, 8, 30 * (i % 3) + 1))[0], i)) for i in range(900)])
    whole = (tmp_path / "db" / "data.mdb").read_bytes()
    rng = np.random.default_rng(3)
    n_told = 0
    for page in range(0, len(whole) // 4096, 3):
        damaged = bytearray(whole)
        damaged[4096 * page:4096 * page + 200] = rng.bytes(200)
        (tmp_path / "db" / "data.mdb").write_bytes(damaged)
        try:
            source = LmdbSource(tmp_path / "db")
            for _ in source.read(np.arange(source.n_records)):
                pass
        except DataError:
            n_told += 1
    assert n_told > 0


def test_compressed_images_are_refused_by_name(tmp_path):
    write(tmp_path / "db", [(b"jpeg", encode_file(b"\xff\xd8\xff", 1))])
    with pytest.raises(DataError, match="record 'jpeg'"):
        list(LmdbSource(tmp_path / "db").read(np.array([0])))
