"""LevelDB read without the library, against the library; damage is one clear line."""

import random
import struct

import lmdb
import numpy as np
import pytest

from scaffe.cli.commands.convert_records import convert_leveldb
from scaffe.data.sources.database import open_database
from scaffe.data.sources.leveldb import LevelDbSource
from scaffe.errors import DataError
from tests.data.databases import datum, unlike_images, varint

plyvel = pytest.importorskip("plyvel", reason="plyvel is not installed")


def fill(folder, seed, compression, write_buffer_size, **options):
    """A database with rewrites and deletions; gives what the library then reads."""
    rng = random.Random(seed)
    with plyvel.DB(str(folder), create_if_missing=True, compression=compression, write_buffer_size=write_buffer_size,
                   **options) as database:
        for _ in range(3):
            batch = database.write_batch()
            for i in range(400):
                value = bytes(rng.randrange(4) for _ in range(rng.randrange(300))) * rng.randrange(1, 5)
                batch.put(b"%05d" % rng.randrange(900), value)
                if i % 5 == 0:
                    batch.delete(b"%05d" % rng.randrange(900))
            batch.write()
        return list(database)


@pytest.mark.parametrize("compression", [None, "snappy"])
@pytest.mark.parametrize("write_buffer_size", [1 << 16, 1 << 24], ids=["tables", "log"])
def test_entries_are_those_of_the_library(tmp_path, compression, write_buffer_size):
    expected = fill(tmp_path / "db", 1, compression, write_buffer_size)
    assert list(LevelDbSource(tmp_path / "db").items()) == expected


def test_after_it_was_opened_again(tmp_path):
    """Opening turns the log into a table and starts another log."""
    fill(tmp_path / "db", 1, "snappy", 1 << 24)
    expected = fill(tmp_path / "db", 2, "snappy", 1 << 24)
    assert list(LevelDbSource(tmp_path / "db").items()) == expected
    with plyvel.DB(str(tmp_path / "db")) as database:
        database.compact_range()
    assert list(LevelDbSource(tmp_path / "db").items()) == expected


@pytest.fixture
def images_db(tmp_path):
    """30 images as Caffe's converter writes them."""
    images = unlike_images(30, (1, 28, 28))
    with plyvel.DB(str(tmp_path / "images"), create_if_missing=True, block_size=65536) as database:
        for i, image in enumerate(images):
            database.put(b"%08d" % i, datum(image, i))
    return tmp_path / "images", images


def test_it_becomes_an_lmdb(images_db, tmp_path):
    folder, images = images_db
    assert convert_leveldb([str(folder), str(tmp_path / "out")]) == 0
    with lmdb.open(str(tmp_path / "out"), readonly=True, lock=False) as env, env.begin() as transaction:
        assert list(transaction.cursor()) == [(b"%08d" % i, datum(image, i)) for i, image in enumerate(images)]


@pytest.mark.parametrize("as_table", [False, True])
def test_a_batch_of_pixels_is_one_run(images_db, as_table):
    folder, images = images_db
    if as_table:
        with plyvel.DB(str(folder)) as database:
            database.compact_range()
    records = np.array([29, 0, 1, 2, 17])
    (run,) = open_database(str(folder)).read(records)
    assert run.shape == (1, 28, 28) and run.labels.tolist() == records.tolist()
    for start, record in zip(run.starts, records, strict=True):
        np.testing.assert_array_equal(run.pixels[start:start + 784].reshape(1, 28, 28), images[record])


def test_a_log_that_breaks_off_gives_what_was_whole(images_db):
    folder, _ = images_db
    (log,) = folder.glob("*.log")
    log.write_bytes(log.read_bytes()[:-500])
    assert LevelDbSource(folder).n_records == 29


def test_damage_is_told(images_db, tmp_path):
    folder, _ = images_db
    with plyvel.DB(str(folder)) as database:
        database.compact_range()
    (table,) = folder.glob("*.ldb")
    whole = table.read_bytes()
    for content, message in ((whole[:-1], "not a LevelDB table"), (whole[:20], "cut short"), (None, "is missing"),
                             (whole[:100] + bytes(5000) + whole[5100:], "damaged|breaks off")):
        table.unlink(missing_ok=True)
        if content is not None:
            table.write_bytes(content)
        with pytest.raises(DataError, match=message):
            source = LevelDbSource(folder)
            list(source.read(np.arange(source.n_records)))
    (folder / "CURRENT").write_text("MANIFEST-000099\n")
    with pytest.raises(DataError, match="MANIFEST-000099: No such file"):
        LevelDbSource(folder)


def test_noise_never_faults(images_db):
    folder, _ = images_db
    with plyvel.DB(str(folder)) as database:
        database.compact_range()
    (table,) = folder.glob("*.ldb")
    whole, rng = table.read_bytes(), np.random.default_rng(0)
    n_told = 0
    for _ in range(60):
        damaged = bytearray(whole)
        at = int(rng.integers(len(whole) - 30))
        damaged[at:at + 20] = rng.bytes(20)
        table.write_bytes(damaged)
        try:
            source = LevelDbSource(folder)
            list(source.read(np.arange(source.n_records)))
        except DataError:
            n_told += 1
    assert n_told > 0


@pytest.mark.parametrize(("packed", "expected"), [
    (varint(5) + b"\x10hello", b"hello"), (varint(9) + b"\x08abc" + b"\x05\x03", None),
    (varint(10) + b"\x08abc" + b"\x0d\x03", b"abcabcabca"), (varint(7) + b"\x08abc" + b"\x0e\x01\x00", b"abccccc"[:7]),
    (varint(70) + b"\xf0\x45" + b"x" * 70, b"x" * 70), (varint(4) + b"\x04ab\x07" + struct.pack("<I", 2), b"abab"),
    (varint(3) + b"\x04ab", None), (varint(3) + b"\x0cab", None), (varint(6) + b"\x04ab\x0d\x09", None), (b"", None),
])
def test_snappy_element_by_element(packed, expected):
    """Literals short and long, copies near and far that overlap themselves; and streams that cannot be."""
    from scaffe.data.kernels.leveldb import uncompress, uncompressed_bytes

    content = np.frombuffer(packed, np.uint8)
    n_bytes = uncompressed_bytes(content, 0, content.size)
    out = np.zeros(max(0, n_bytes), np.uint8)
    code = uncompress(content, 0, content.size, out) if n_bytes >= 0 else n_bytes
    assert (out.tobytes() if code == 0 else None) == expected
