"""A small LMDB pair, made once from the repository's images by the project's own converter."""

import pytest

from scaffe.data.convert.archives import convert_mnist
from scaffe.data.records.idx import read_idx, write_idx
from tests.scaffe.runs import EXAMPLE, NET

N_TRAIN, N_TEST = 3200, 300  # 50 batches of 64


@pytest.fixture(scope="session")
def databases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("databases")
    for stem, name, n_records in (("train", "train", N_TRAIN), ("t10k", "test", N_TEST)):
        write_idx(folder / "images", read_idx(EXAMPLE / f"{stem}-images-idx3-ubyte.gz", 3)[:n_records])
        write_idx(folder / "labels", read_idx(EXAMPLE / f"{stem}-labels-idx1-ubyte.gz", 1)[:n_records])
        convert_mnist(str(folder / "images"), str(folder / "labels"), str(folder / name), False)
    return folder


@pytest.fixture(scope="session")
def lenet(databases):
    """LeNet's text over the small databases."""
    return NET.replace("examples/fashion_mnist/train_lmdb", str(databases / "train")).replace(
        "examples/fashion_mnist/test_lmdb", str(databases / "test"))
