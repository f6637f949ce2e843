"""Where files may not grow, tools say so in one line that names their target once, and leave nothing behind."""

from importlib.util import find_spec

import numpy as np
import pytest

from scaffe.cli import main as cli
from scaffe.data.convert.leveldb_writer import write_leveldb
from scaffe.data.records.idx import write_idx
from tests.data.databases import datum, unlike_images, write
from tests.full_disk import full_disk

LIMIT = 1 << 15


@pytest.fixture
def sources(tmp_path):
    """A folder with something for every tool; what they make of it is longer than ``LIMIT``."""
    rng, folder = np.random.default_rng(0), tmp_path / "sources"
    folder.mkdir()
    write_idx(folder / "train-images-idx3-ubyte", rng.integers(0, 256, (200, 28, 28), np.uint8))
    write_idx(folder / "train-labels-idx1-ubyte", rng.integers(0, 10, 200, np.uint8))
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        rng.integers(0, 10, (20, 3073), np.uint8).tofile(folder / name)
    records = [(b"%08d" % i, datum(image, 0)) for i, image in enumerate(unlike_images(2, (3, 80, 80)))]
    write(folder / "db", records)
    write_leveldb(folder / "leveldb", records)
    if find_spec("cv2"):
        import cv2

        cv2.imwrite(str(folder / "noise.png"), unlike_images(1, (120, 120, 3))[0])
        (folder / "list.txt").write_text("noise.png 1\n")
    return folder


MNIST = ("{0}/train-images-idx3-ubyte", "{0}/train-labels-idx1-ubyte")
TOOLS = {
    "mnist": ("convert_mnist", "{0}", "train", "{1}"),
    "mnist_lmdb": ("convert_mnist_data", *MNIST, "{1}"),
    "mnist_leveldb": ("convert_mnist_data", "-backend", "leveldb", *MNIST, "{1}"),
    "cifar": ("convert_cifar_data", "{0}", "{1}", "lmdb"),
    "leveldb": ("convert_leveldb", "{0}/leveldb", "{1}"),
    "mean": ("compute_image_mean", "{0}/db", "{1}")}
if find_spec("cv2"):
    TOOLS["imageset"] = ("convert_imageset", "{0}/", "{0}/list.txt", "{1}")
WHERE = {"cifar": "cifar10_train_lmdb"}  # in the folder that it is given


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_that_cannot_write_says_so_in_one_line(tmp_path, sources, capfd, tool):
    target = tmp_path / "out" / WHERE.get(tool, "made")
    target.parent.mkdir()
    given = target.parent if tool in WHERE else target
    with full_disk(LIMIT):
        assert cli.main([word.format(sources, given) for word in TOOLS[tool]]) == 1
    assert capfd.readouterr().err == f"scaffe: {target} cannot be written: file too large\n"
    assert list(target.parent.iterdir()) == []


def test_a_database_that_was_there_stays(tmp_path, sources, capfd):
    before = (sources / "db" / "data.mdb").read_bytes()
    arguments = [word.format(sources) for word in MNIST]
    with full_disk(LIMIT):
        assert cli.main(["convert_mnist_data", "-force", *arguments, str(sources / "db")]) == 1
    assert "db cannot be written: file too large" in capfd.readouterr().err
    assert (sources / "db" / "data.mdb").read_bytes() == before
    assert not list(sources.glob(".*"))


def test_no_folder_to_write_into(tmp_path, sources, capfd):
    target = tmp_path / "absent" / "db"
    assert cli.main(["convert_mnist", str(sources), "train", str(target)]) == 1
    assert capfd.readouterr().err == f"scaffe: {target} cannot be written: no such file or directory\n"
