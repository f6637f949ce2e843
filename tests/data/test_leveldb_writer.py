"""LevelDBs that we write, read by LevelDB's own library, by ours, and named by tools' arguments."""

import numpy as np
import pytest

from scaffe.cli.commands.convert_images import convert_imageset
from scaffe.cli.commands.convert_records import compute_image_mean, convert_cifar_data, convert_mnist_data
from scaffe.data.convert.leveldb_writer import write_leveldb
from scaffe.data.kernels.leveldb import crc32c
from scaffe.data.sources.leveldb import LevelDbSource
from scaffe.errors import DataError, UsageError
from tests.data.databases import datum, unlike_images

plyvel = pytest.importorskip("plyvel", reason="plyvel is not installed")


@pytest.mark.parametrize(("content", "expected"), [
    (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (b"123456789", 0xE3069283)])
def test_the_checksum_is_that_of_rfc_3720(content, expected):
    assert crc32c(np.frombuffer(content, np.uint8)) == expected


@pytest.mark.parametrize(("n_records", "longest"), [(1, 0), (7, 40), (3000, 300), (40, 70000)])
def test_their_library_reads_what_we_write(tmp_path, n_records, longest):
    rng = np.random.default_rng(n_records)
    records = [(b"%08d_%s" % (i, b"x" * (i % 5)), rng.bytes(int(rng.integers(0, longest + 1))))
               for i in range(n_records)]
    assert write_leveldb(tmp_path / "db", records) == n_records
    with plyvel.DB(str(tmp_path / "db"), paranoid_checks=True) as database:
        assert list(database.iterator(verify_checksums=True)) == records
        assert database.get(records[-1][0]) == records[-1][1]
        assert database.get(b"absent") is None
        database.put(b"99999999", b"more")
        assert len(list(database.iterator())) == n_records + 1


def test_our_reader_reads_it(tmp_path):
    images = unlike_images(300, (3, 8, 9))
    write_leveldb(tmp_path / "db", ((b"%08d" % i, datum(image, i % 7)) for i, image in enumerate(images)))
    source = LevelDbSource(tmp_path / "db")
    runs = list(source.read(np.array([0, 299, 5])))
    assert source.n_records == 300
    assert np.concatenate([run.labels for run in runs]).tolist() == [0, 299 % 7, 5]


@pytest.mark.parametrize(("records", "said"), [
    ([(b"b", b""), (b"a", b"")], "'a' does not come after 'b'"), ([(b"a", b""), (b"a", b"")], "does not come after"),
    ([], "no records")])
def test_what_cannot_be_written_leaves_nothing(tmp_path, records, said):
    with pytest.raises(DataError, match=said):
        write_leveldb(tmp_path / "db", records)
    assert not list(tmp_path.iterdir())


def test_an_old_one_is_replaced_only_by_force(tmp_path):
    write_leveldb(tmp_path / "db", [(b"a", b"1")])
    with pytest.raises(DataError, match="exists already"):
        write_leveldb(tmp_path / "db", [(b"b", b"2")])
    write_leveldb(tmp_path / "db", [(b"b", b"2")], force=True)
    with plyvel.DB(str(tmp_path / "db")) as database:
        assert list(database) == [(b"b", b"2")]


def test_tools_write_both_kinds_alike(tmp_path, capsys):
    cv2 = pytest.importorskip("cv2")
    from scaffe.data.records.idx import write_idx

    write_idx(tmp_path / "images", unlike_images(5, (4, 3)))
    write_idx(tmp_path / "labels", np.arange(5, dtype=np.uint8))
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (tmp_path / name).write_bytes(bytes(3073))
    cv2.imwrite(str(tmp_path / "a.png"), unlike_images(1, (4, 3))[0])
    (tmp_path / "list.txt").write_text("a.png 3\na.png 4\n")
    kinds = []
    for kind in ("lmdb", "leveldb"):
        folder = tmp_path / kind
        folder.mkdir()
        convert_mnist_data([f"--backend={kind}", str(tmp_path / "images"), str(tmp_path / "labels"),
                                 str(folder / "mnist")])
        convert_cifar_data([str(tmp_path), str(folder), kind])
        convert_imageset([f"-backend={kind}", f"{tmp_path}/", str(tmp_path / "list.txt"), str(folder / "set")])
        capsys.readouterr()
        for name in ("mnist", f"cifar10_train_{kind}", "set"):
            compute_image_mean([f"-backend={kind}", str(folder / name)])
        kinds.append(capsys.readouterr().out)
    assert kinds[0] == kinds[1]
    with pytest.raises(UsageError, match="-backend must be one of lmdb, leveldb, got 'redis'"):
        convert_mnist_data(["-backend=redis", str(tmp_path / "images"), str(tmp_path / "labels"), "db"])
