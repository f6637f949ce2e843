"""Caffe's data tools, end to end on small files."""

from dataclasses import replace

import lmdb
import numpy as np
import pytest

from scaffe.cli.commands.convert_images import convert_imageset
from scaffe.cli.commands.convert_records import compute_image_mean, convert_cifar_data
from scaffe.data.convert import imageset
from scaffe.data.convert.imageset import ImagesetOptions
from scaffe.data.convert.writers import write_lmdb
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.errors import DataError, UsageError
from scaffe.proto import caffe_pb2
from tests.data.databases import datum, unlike_images, write


def records_of(folder):
    """Keys and Datum messages, through the lmdb and protobuf libraries."""
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin() as transaction:
        return [(key, caffe_pb2.Datum.FromString(value)) for key, value in transaction.cursor()]


@pytest.mark.parametrize("n_images", [1, 600])
def test_the_mean_is_exact_and_a_blob_proto(tmp_path, n_images, capsys):
    images = unlike_images(n_images, (3, 4, 5))
    write(tmp_path / "db", [(b"%08d" % i, datum(image, 0)) for i, image in enumerate(images)])
    assert compute_image_mean([str(tmp_path / "db"), str(tmp_path / "mean.binaryproto")]) == 0
    blob = caffe_pb2.BlobProto.FromString((tmp_path / "mean.binaryproto").read_bytes())
    assert (blob.num, blob.channels, blob.height, blob.width) == (1, 3, 4, 5)
    np.testing.assert_array_equal(blob.data, images.mean(0, dtype=np.float64).astype(np.float32).reshape(-1))
    mean_of_one = f"mean_value channel [1]: {images[:, 1].mean():g}"
    assert mean_of_one in capsys.readouterr().out.splitlines()


def test_images_of_two_shapes_have_no_mean(tmp_path):
    write(tmp_path / "db", [(b"a", datum(unlike_images(1)[0], 0)), (b"b", datum(unlike_images(1, (1, 5, 4))[0], 0))])
    with pytest.raises(DataError, match="record 'b' has the shape"):
        compute_image_mean([str(tmp_path / "db")])


def test_cifar(tmp_path):
    rng = np.random.default_rng(0)
    raw = {name: rng.integers(0, 256, (n, 3073), np.uint8) for name, n in
           [(f"data_batch_{i}.bin", 2 + i) for i in range(1, 6)] + [("test_batch.bin", 3)]}
    for name, content in raw.items():
        (tmp_path / name).write_bytes(content.tobytes())
    assert convert_cifar_data([str(tmp_path), str(tmp_path), "lmdb"]) == 0
    train = np.concatenate([raw[f"data_batch_{i}.bin"] for i in range(1, 6)])
    for part, expected in (("train", train), ("test", raw["test_batch.bin"])):
        found = records_of(tmp_path / f"cifar10_{part}_lmdb")
        assert [key for key, _ in found] == [b"%05d" % i for i in range(len(expected))]
        for (_, message), row in zip(found, expected, strict=True):
            assert (message.channels, message.height, message.width, message.label) == (3, 32, 32, row[0])
            assert message.data == row[1:].tobytes()


def test_a_cut_cifar_archive_is_told(tmp_path):
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3072))
    with pytest.raises(DataError, match="expected records of 3073 bytes, found 3072"):
        convert_cifar_data([str(tmp_path), str(tmp_path)])


@pytest.fixture
def pictures(tmp_path):
    """Three images, one missing file and one that is no image, listed."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    for name, image in zip(("a.png", "b.jpg", "c.png"), unlike_images(3, (12, 10, 3)), strict=True):
        cv2.imwrite(str(tmp_path / name), image)
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "list.txt").write_text("a.png 5\nabsent.png 1\ntext.png 1\nb.jpg 6\nc.png 7\n")
    return tmp_path


def convert(pictures, *flags):
    """Run the tool; gives the records of the new database."""
    assert convert_imageset([*flags, f"{pictures}/", str(pictures / "list.txt"), str(pictures / "db")]) == 0
    return records_of(pictures / "db")


def test_pixels_are_stored_plane_by_plane(pictures, capsys):
    import cv2

    found = convert(pictures)
    assert [key for key, _ in found] == [b"00000000_a.png", b"00000003_b.jpg", b"00000004_c.png"]
    for (key, message), label in zip(found, (5, 6, 7), strict=True):
        image = cv2.imread(str(pictures / key[9:].decode()))
        assert (message.channels, message.height, message.width, message.label) == (3, 12, 10, label)
        assert message.data == np.moveaxis(image, -1, 0).tobytes() and not message.encoded
    said = capsys.readouterr()
    assert "absent.png: No such file" in said.err and "text.png: not an image" in said.err
    assert "Processed 3 files." in said.out
    assert said.err.splitlines()[2] == "2 of the listed images left out, named above"


def test_empty_lines_count_in_the_keys(pictures, capsys):
    """As in Caffe, which takes them for images that it cannot read."""
    (pictures / "list.txt").write_bytes(b"\xef\xbb\xbfa.png 5\n\n \nb.jpg  6\n\nc.png 7\n\n")
    found = convert(pictures)
    assert [(key, message.label) for key, message in found] == [(b"00000000_a.png", 5), (b"00000003_b.jpg", 6),
                                                                (b"00000005_c.png", 7)]
    assert capsys.readouterr().err == ""


def test_grey_and_resized(pictures):
    import cv2

    (_, message), *_ = convert(pictures, "-gray", "-resize_height=6", "--resize_width", "8")
    assert (message.channels, message.height, message.width) == (1, 6, 8)
    grey = cv2.imread(str(pictures / "a.png"), cv2.IMREAD_GRAYSCALE)
    assert message.data == cv2.resize(grey, (8, 6)).tobytes()


def test_files_are_kept_whole_where_asked(pictures):
    found = convert(pictures, "-encoded")
    for key, message in found:
        assert message.encoded and message.data == (pictures / key[9:].decode()).read_bytes()
    runs = list(LmdbSource(pictures / "db").read(np.arange(3)))
    assert [run.shape for run in runs] == [(3, 12, 10)] and runs[0].labels.tolist() == [5, 6, 7]


def test_files_are_made_anew_in_another_kind(pictures):
    for key, message in convert(pictures, "-encode_type=png", "-resize_height=5", "-resize_width=5"):
        assert message.encoded and message.data[:4] == b"\x89PNG", key


@pytest.mark.parametrize("options", [{}, {"encoded": True}, {"grey": True, "height": 7, "width": 5, "shuffle": True}])
def test_files_do_not_depend_on_the_number_of_threads(tmp_path, options):
    """Byte for byte: the records that one thread makes one by one, written by 1,000 and 64 MB."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    for i, image in enumerate(unlike_images(40, (12, 10, 3))):
        cv2.imwrite(str(tmp_path / f"{i}.png"), image)
    names = [f"{i % 41}.png" for i in range(1300)]  # the last of them does not exist
    (tmp_path / "list.txt").write_text("".join(f"{name} {i}\n" for i, name in enumerate(names)))
    root, made = f"{tmp_path}/", ImagesetOptions(**options, on_bad=str)
    one = imageset._RecordMaker(root, made)
    records = (one.make((i, names[line], int(line))) for i, line in enumerate(made.order(len(names))))
    write_lmdb(tmp_path / "naive", [record[:2] for record in records if record])
    expected = (tmp_path / "naive/data.mdb").read_bytes()
    for n_threads in (1, 2, 7):
        n_records = imageset.convert_imageset(root, tmp_path / "list.txt", tmp_path / "db",
                                              replace(made, n_threads=n_threads), force=True)
        assert n_records == sum(name != "40.png" for name in names)
        assert (tmp_path / "db/data.mdb").read_bytes() == expected


@pytest.mark.parametrize("kind", ["\udcff", "p\udce9g", "pngé", "none"])
def test_a_kind_that_is_none_is_told(pictures, kind):
    with pytest.raises(DataError, match="OpenCV cannot write images of type"):
        convert(pictures, f"-encode_type={kind}")


def test_shuffling_keeps_all(pictures):
    (pictures / "list.txt").write_text("".join(f"a.png {i}\n" for i in range(50)))
    labels = [message.label for _, message in convert(pictures, "-shuffle")]
    assert sorted(labels) == list(range(50)) and labels != list(range(50))


def test_what_cannot_be_converted_is_told(pictures):
    import cv2

    with pytest.raises(UsageError, match="-backend must be one of lmdb, leveldb, got 'redis'"):
        convert(pictures, "-backend=redis")
    with pytest.raises(DataError, match="go together"):
        convert(pictures, "-resize_width=3")
    (pictures / "list.txt").write_text("absent.png 1\n")
    with pytest.raises(DataError, match="not one of its images"):
        convert(pictures)
    cv2.imwrite(str(pictures / "small.png"), np.zeros((3, 3, 3), np.uint8))
    (pictures / "list.txt").write_text("a.png 1\nsmall.png 1\n")
    with pytest.raises(DataError, match="small.png: has the shape"):
        convert(pictures, "-check_size")
    assert not (pictures / "db").exists()
