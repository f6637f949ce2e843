"""Small files made to crash, to hang or to fill the memory: one line each, in little time and memory."""

import gzip
import os
import struct
import zlib

import h5py
import numpy as np
import pytest

from scaffe.data.convert.archives import read_cifar
from scaffe.data.feeds.layer_feed import ReaderOptions, Share, open_layer_feed
from scaffe.data.feeds.parameters import read_mean
from scaffe.data.kernels.datum_fields import read_floats
from scaffe.data.records.idx import read_idx
from scaffe.data.sources.database import open_database
from scaffe.data.sources.hdf5 import Hdf5Files
from scaffe.data.sources.image_list import ImageListSource, read_list
from scaffe.data.sources.leveldb import LevelDbSource
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.data.sources.source import Run
from scaffe.data.sources.windows import read_windows
from scaffe.errors import DataError
from scaffe.proto import caffe_pb2
from tests.crafted import ladder_lmdb, not_files
from tests.data.databases import unlike_images, varint, write
from tests.data.test_layer_feed import layer


def open_feed(param):
    """Its feed, without threads."""
    return open_layer_feed(param, 0, Share(), iter(range(9)).__next__, ReaderOptions(0))


HEAD = b"\x08\x01\x10\x01\x18\x01"  # 1 x 1 x 1


@pytest.mark.parametrize(("record", "message"), [
    (HEAD + b"\x32\x04abcd" + b"\x32\x03abc" * 1_000_000, "is not a Datum"),  # a float, and 3 MB that count none
    (HEAD + b"\x32\x07abcdefg", "is not a Datum"), (HEAD + b"\x32\x04abc", "is not a Datum"),
    (HEAD + b"\x31abcdefgh", "1 values expected, found 0"),  # in the form of a double, which is another field
])
def test_float_data_that_is_not_of_whole_floats(tmp_path, record, message):
    write(tmp_path / "db", [(b"theKey", record)])
    with pytest.raises(DataError, match=f"record 'theKey'.*{message}"):
        list(LmdbSource(tmp_path / "db").read(np.array([0])))


def test_a_field_of_another_form_is_passed_over(tmp_path):
    write(tmp_path / "db", [(b"a", HEAD + b"\x32\x04abcd" + b"\x31efghijkl")])
    (run,) = LmdbSource(tmp_path / "db").read(np.array([0]))
    assert run.pixels.tobytes() == b"abcd"


def test_floats_are_copied_only_where_there_is_room():
    """The kernel by itself: whatever was counted, nothing is written behind the end of what it was given."""
    record = np.frombuffer(HEAD + b"\x32\x08abcdefgh", np.uint8)
    memory = np.zeros(64, np.uint8)
    for n_bytes, expected in ((8, 0), (4, -2), (12, -2)):
        memory[:] = 0
        assert read_floats(record, 0, record.size, memory[:n_bytes]) == expected
        assert not memory[n_bytes:].any()


def test_a_run_lies_inside_its_pixels():
    for starts in ([0, 13], [-1, 0]):
        with pytest.raises(ValueError, match="do not lie inside"):
            Run(np.zeros(24, np.uint8), np.array(starts), np.zeros(2), (3, 2, 2))
    Run(np.zeros(24, np.uint8), np.array([12, 0]), np.zeros(2), (3, 2, 2))


def test_a_page_has_one_parent(tmp_path):
    """22 pages, 100 ** 20 ways through them."""
    (tmp_path / "data.mdb").write_bytes(ladder_lmdb())
    with pytest.raises(DataError, match="damaged"):
        LmdbSource(tmp_path)


def test_a_root_beyond_any_file(tmp_path):
    write(tmp_path / "db", [(b"a", b"b")])
    content = bytearray((tmp_path / "db" / "data.mdb").read_bytes())
    for page in (0, 4096):
        content[page + 16 + 24 + 48 + 40:page + 16 + 24 + 48 + 48] = b"\xff" * 7 + b"\xf0"
    (tmp_path / "db" / "data.mdb").write_bytes(content)
    with pytest.raises(DataError, match="cut short"):
        LmdbSource(tmp_path / "db")


def log(records):
    """A LevelDB log, or manifest, of records of less than a block."""
    return b"".join(struct.pack("<IHB", 0, len(content), kind) + content for kind, content in records)


def leveldb(folder, table=b"", records=(), current="MANIFEST-000001\n"):
    """A LevelDB folder of one table and one log."""
    edit = b"\x02\x03" + (b"\x07\x00\x05\x00\x00\x00" if table else b"")
    (folder / "CURRENT").write_text(current)
    (folder / "MANIFEST-000001").write_bytes(log([(1, edit)]))
    (folder / "000003.log").write_bytes(log(records))
    if table:
        (folder / "000005.ldb").write_bytes(table)


def block(entries):
    """An uncompressed block of (shared, rest of the key, value), without a checksum."""
    packed = b"".join(varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value
                      for shared, rest, value in entries)
    return packed + struct.pack("<II", 0, 1)


def table_of(blocks, n_times=1):
    """A table file of blocks, each n_times in the index."""
    content, handles = b"", []
    for one in blocks:
        handles += [varint(len(content)) + varint(len(one))] * n_times
        content += one + b"\0" + bytes(4)
    index = block([(0, b"%08d" % i, handle) for i, handle in enumerate(handles)])
    at = len(content)
    footer = (b"\0\0" + varint(at) + varint(len(index))).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    return content + index + b"\0" + bytes(4) + footer


def key_of(name, sequence=1):
    """A table's key of a value."""
    return name + struct.pack("<Q", sequence << 8 | 1)


def test_a_leveldb_whose_keys_unfold(tmp_path):
    """300 KB spell out 100 GB of keys."""
    entries = [(0, bytes(100_000) + key_of(b"a"), b"")] + [(100_000, key_of(b"b"), b"")] * 15_000
    leveldb(tmp_path, table_of([block(entries)]))
    with pytest.raises(DataError, match="bytes of keys"):
        LevelDbSource(tmp_path)


def test_a_leveldb_block_that_is_listed_many_times(tmp_path):
    """An index of 20,000 lines for one block of 20,000 records."""
    leveldb(tmp_path, table_of([block([(0, key_of(b"a"), b"")] * 20_000)], 20_000))
    with pytest.raises(DataError, match="blocks overlap"):
        LevelDbSource(tmp_path)


def test_a_leveldb_log_of_ends_without_starts(tmp_path):
    """A million ends of a record that started once; LevelDB passes over them."""
    batch = struct.pack("<QI", 1, 1) + b"\x01" + varint(3) + b"key" + varint(1) + b"v"
    ends = b"".join(log([(4, b"")] * 4681).ljust(32768, b"\0") for _ in range(200))
    leveldb(tmp_path)
    (tmp_path / "000003.log").write_bytes(log([(2, batch), (4, b"")]).ljust(32768, b"\0") + ends)
    assert list(LevelDbSource(tmp_path).items()) == [(b"key", b"v")]


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "MANIFEST-/../../outside", "", "000003.log"])
def test_a_leveldb_names_its_own_manifest(tmp_path, name):
    leveldb(tmp_path, current=name)
    with pytest.raises(DataError, match="CURRENT must name a MANIFEST"):
        LevelDbSource(tmp_path)


@pytest.mark.parametrize(("shape", "n_bytes"), [((30, 4000, 40000), 10), ((4000, 4000, 300), 4_800_000_000 // 100)])
def test_a_gzip_bomb_of_images(tmp_path, shape, n_bytes):
    """What the head says decides, before anything is unpacked."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(struct.pack(">4I", 0x0803, *shape)) + packer.compress(bytes(n_bytes)) + packer.flush()
    (tmp_path / "images.gz").write_bytes(packed)
    with pytest.raises(DataError, match="more than a file of"):
        read_idx(tmp_path / "images.gz", 3)


def test_a_gzip_file_longer_than_its_head_says(tmp_path):
    content = struct.pack(">4I", 0x0803, 2, 3, 4) + bytes(10 ** 8)
    (tmp_path / "images.gz").write_bytes(gzip.compress(content, 9))
    with pytest.raises(DataError, match="24|2x3x4 bytes expected"):
        read_idx(tmp_path / "images.gz", 3)


@pytest.mark.parametrize(("what", "message"), [
    ("nothing", "more than a file of"), ("compressed", "more than a file of"), ("chunk", "more than a file of"),
    ("external", "lies in other files"), ("virtual", "lies in other files"), ("link", "links into other files"),
    ("deep link", "links into other files"), ("text", "must have rows of numbers"), ("scalar", "must have rows"),
    ("group", "no dataset"), ("null", "must have rows"),
])
def test_hdf5_that_is_more_or_elsewhere(tmp_path, what, message):
    outside = tmp_path / "outside.h5"
    with h5py.File(outside, "w") as file:
        file["data"] = np.zeros((3, 2), np.float32)
    (tmp_path / "raw").write_bytes(bytes(1000))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if what == "nothing":
            file.create_dataset("data", (700_000_000,), np.float32)
        elif what == "compressed":
            file.create_dataset("data", (1 << 20, 700), np.float32, chunks=(1 << 20, 1), compression="gzip")
        elif what == "chunk":
            file.create_dataset("data", (3, 2), np.float32, chunks=(30_000, 30_000), maxshape=(None, None))
        elif what == "external":
            file.create_dataset("data", (3, 2), np.float32, external=[(str(tmp_path / "raw"), 0, 24)])
        elif what == "virtual":
            layout = h5py.VirtualLayout((3, 2), np.float32)
            layout[...] = h5py.VirtualSource(outside, "data", (3, 2))
            file.create_virtual_dataset("data", layout)
        elif what == "link":
            file["data"] = h5py.ExternalLink(outside, "data")
        elif what == "deep link":
            file["data"] = np.zeros((3, 2), np.float32)
            file["a/b/c"] = h5py.ExternalLink("/dev/zero", "data")
        elif what == "text":
            file["data"] = [b"abc", b"de"]
        elif what == "scalar":
            file["data"] = 3
        elif what == "group":
            file.create_group("data")
        else:
            file["data"] = h5py.Empty("f")
    (tmp_path / "list").write_text(str(tmp_path / "a.h5"))
    with pytest.raises(DataError, match=message) as caught:
        Hdf5Files(str(tmp_path / "list"), ["data"])
    assert "\n" not in str(caught.value) and str(tmp_path / "a.h5") in str(caught.value)


def test_damaged_hdf5_is_one_line(tmp_path):
    """Every byte of the file's own structures, set to 255: whatever h5py raises, wherever it does."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=np.arange(6.0).reshape(3, 2), chunks=(2, 2), compression="gzip")
        file["label"] = np.arange(3)
    whole = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "list").write_text(str(tmp_path / "b.h5"))
    n_told = 0
    for at in np.flatnonzero(np.frombuffer(whole, np.uint8))[::3]:
        (tmp_path / "b.h5").write_bytes(whole[:at] + b"\xff" + whole[at + 1:])
        try:
            files = Hdf5Files(str(tmp_path / "list"), ["data", "label"])
            files.read(np.arange(files.n_rows[0]), [np.zeros((files.n_rows[0], *shape)) for shape in files.shapes])
        except DataError as error:
            n_told += 1
            assert str(error).startswith(str(tmp_path / "b.h5")) and "\n" not in str(error)
    assert n_told > 50


@pytest.mark.parametrize(("text", "message"), [
    (f"# 0\na.png {1 << 63} 9 9 1\n1 0.9 1 1 2 2", "image 0: 9223372036854775808 does not fit 32 bits"),
    (f"# 0\na.png 3 9 9 1\n1 0.9 {1 << 64} 1 2 2", "image 0: 18446744073709551616 does not fit"),
    (f"# 0\na.png 3 9 9 1\n{1 << 40} 0.9 1 1 2 2", "does not fit"),
    ("# 0\na.png 3 9 9 1\n1 0.9 " + "1" * 5000 + " 1 2 2", "image 0"),
    ("# 0\na.png 3 9 9 1\n1 0.9 5 1 4 2", "the window 5 1 4 2 ends before it begins"),
    ("# 0\na.png 3 9 9 1\n1 0.1 1 5 4 2", "the window 1 5 4 2 ends before it begins"),
    ("# 0\na.png 0 9 9 1\n1 0.1 1 5 4 2", "0 channels"), ("# 0\na.png -3 9 9 1\n1 0.1 1 5 4 2", "-3 channels"),
])
def test_windows_that_are_none(tmp_path, text, message):
    (tmp_path / "windows.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_windows(str(tmp_path / "windows.txt"), "", 0.5, 0.3)


def test_window_files_and_lists_that_are_no_text(tmp_path):
    (tmp_path / "file").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="breaks off within image -1"):
        read_windows(str(tmp_path / "file"), "", 0.5, 0.3)
    (tmp_path / "file").write_bytes(b"# 0\n\xff.png 3 9 9 2\n1 0.9 1 1 2 2\n1 0.1 1 1 2 2")
    assert [os.fsencode(path) for path in read_windows(str(tmp_path / "file"), "f/", 0.5, 0.3).paths] == [b"f/\xff.png"]
    (tmp_path / "file").write_bytes(b"\xff.png 18446744073709551616\n")
    with pytest.raises(DataError, match="file:1: the label 18446744073709551616 does not fit 32 bits"):
        read_list(tmp_path / "file")


@pytest.mark.parametrize(("height", "width"), [(1 << 31, 1 << 31), ((1 << 32) - 1, 1), (1 << 20, 1 << 20), (-1, 5)])
def test_images_of_an_impossible_size(tmp_path, height, width):
    (tmp_path / "list").write_text("a.png 0\n")
    with pytest.raises(DataError, match=f"new_height.*{height}.*{width}"):
        ImageListSource(tmp_path / "list", "", height, width)


def test_an_image_of_a_billion_pixels(tmp_path):
    """A PNG of 32768 x 32768 grey zeros."""
    pytest.importorskip("cv2", reason="OpenCV is not installed")

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compress(bytes(32769 * 64))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 32768, 32768, 8, 0, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(content)
    (tmp_path / "list").write_text("a.png 0\n")
    with pytest.raises(DataError, match="a.png: not an image"):
        list(ImageListSource(tmp_path / "list", f"{tmp_path}/").read(np.array([0])))


@pytest.mark.parametrize(("extra", "message"), [
    ("batch_size: 2 prefetch: 4294967295", "prefetch 4294967295 is above 1000"),
    ("batch_size: 2 prefetch: 1001", "above 1000"),
    ("batch_size: 2147483647", "lower batch_size"), ("batch_size: 4294967295", "lower batch_size"),
])
def test_more_batches_than_there_is_memory(tmp_path, extra, message):
    database = write(tmp_path / "db", [(b"a", b"\x08\x01\x10\x08\x18\x08\x22\x40" + bytes(64))])
    with pytest.raises(DataError, match=message):
        open_feed(layer(
            f'type: "Data" data_param {{ source: "{database}" {extra} }}'))


def test_hdf5_and_windows_of_more_batches_than_memory(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = np.zeros((2, 100), np.float32)
    (tmp_path / "list").write_text(str(tmp_path / "a.h5"))
    with pytest.raises(DataError, match="lower batch_size"):
        open_feed(layer(f'type: "HDF5Data" top: "data" hdf5_data_param {{ source: "{tmp_path}/list" '
                        'batch_size: 4294967295 }'))
    (tmp_path / "windows").write_text("# 0\na.png 3 9 9 2\n1 0.9 1 1 2 2\n1 0.1 1 1 2 2")
    with pytest.raises(DataError, match="lower batch_size"):
        open_feed(layer(f'type: "WindowData" window_data_param {{ source: "{tmp_path}/windows" batch_size: 1 }} '
                        'transform_param { crop_size: 2147483647 }'))


@pytest.mark.parametrize("dims", [(1 << 32, 1 << 32, 1), (-1, -1, 0), (1, -2, -2), (0, 0, 0)])
def test_a_mean_of_an_impossible_shape(tmp_path, dims):
    blob = caffe_pb2.BlobProto(data=[1] * 4)
    blob.shape.dim.extend(dims)
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    with pytest.raises(DataError, match="expected one image"):
        read_mean(str(tmp_path / "mean"))


READERS = {
    "database": open_database, "lmdb": LmdbSource, "idx": lambda path: read_idx(path, 3), "mean": read_mean,
    "list": read_list, "windows": lambda path: read_windows(path, "", 0.5, 0.3), "cifar": read_cifar,
    "hdf5 list": lambda path: Hdf5Files(path, ["data"]),
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_not_a_file_is_told(tmp_path, kind):
    for path in not_files(tmp_path):
        with pytest.raises(DataError, match=f"{path}: expected a file, found a (named pipe|device)"):
            READERS[kind](path)


@pytest.mark.parametrize("name", ["data.mdb", "CURRENT", "MANIFEST-000001", "000003.log", "000005.ldb", "image", "h5"])
def test_what_is_not_a_file_further_in(tmp_path, name):
    if name not in ("data.mdb", "image", "h5"):
        leveldb(tmp_path, table_of([block([(0, key_of(b"a"), b"")])]))
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    (tmp_path / "list").write_text(f"{tmp_path / name}")
    reader = {"image": lambda: list(ImageListSource(tmp_path / "list").read(np.array([0]))),
              "h5": lambda: Hdf5Files(str(tmp_path / "list"), ["data"])}.get(name, lambda: open_database(str(tmp_path)))
    with pytest.raises(DataError, match="expected a file, found a named pipe"):
        reader()


def test_pictures_still_have_their_pixels():
    """The limits leave what there was: a run of one image at the very end of its array."""
    image = unlike_images(1, (2, 3, 3))[0]
    run = Run(image.reshape(-1), np.zeros(1, np.int64), np.zeros(1), (2, 3, 3))
    assert run.pixels[int(run.starts[0]):].size == 18
