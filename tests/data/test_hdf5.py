"""HDF5 feeds: rows of several files in order, each top of any shape."""

import numpy as np
import pytest

from scaffe.data.feeds.feed import ReaderOptions
from scaffe.data.feeds.hdf5_feed import hdf5_feed
from scaffe.data.order.share import batch_elems, visits_in_training
from scaffe.errors import DataError

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
N_ROWS = (5, 1, 8)
ROWS = sum(N_ROWS)
IMAGES = np.arange(ROWS * 2 * 3 * 4, dtype=np.float32).reshape(ROWS, 2, 3, 4)
LABELS, VECTORS = np.arange(ROWS) * 3, np.arange(ROWS * 4, dtype=np.float64).reshape(ROWS, 4) / 8


@pytest.fixture
def listed(tmp_path):
    """A list of three files that share the rows out."""
    ends = np.cumsum(N_ROWS)
    for i, (first, end) in enumerate(zip(ends - N_ROWS, ends, strict=True)):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            for name, array in (("data", IMAGES), ("label", LABELS), ("vector", VECTORS)):
                file[name] = array[first:end]
    (tmp_path / "list.txt").write_text("".join(f"{tmp_path}/{i}.h5\n" for i in range(3)))
    return str(tmp_path / "list.txt")


def take(listed, names, n_batches, rank=0, ranks=1, shuffle=False, n_threads=2):
    """Copies of the first batches of 4."""
    n = batch_elems(4, rank, ranks)
    feed = hdf5_feed(listed, names, visits_in_training(4, rank, ranks), n, shuffle, ReaderOptions(n_threads))
    batches = [[array.copy() for array in feed.next()] for _ in range(n_batches)]
    feed.close()
    return feed.shapes, batches


@pytest.mark.parametrize("n_threads", [0, 1, 3])
def test_rows_come_in_order_over_all_files(listed, n_threads):
    shapes, batches = take(listed, ["data", "label", "vector"], 9, n_threads=n_threads)
    assert shapes == [(4, 2, 3, 4), (4,), (4, 4)]
    for i, (images, labels, vectors) in enumerate(batches):
        rows = np.arange(4 * i, 4 * i + 4) % ROWS
        np.testing.assert_array_equal(np.moveaxis(images, -1, 1), IMAGES[rows])
        np.testing.assert_array_equal(labels, LABELS[rows])
        np.testing.assert_array_equal(vectors, VECTORS[rows])
        assert images.dtype == labels.dtype == vectors.dtype == np.float32


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_share_the_batches_out(listed, shuffle):
    _, alone = take(listed, ["label"], 8, shuffle=shuffle)
    for rank in range(3):
        _, part = take(listed, ["label"], 8, rank, 3, shuffle)
        for mine, (whole,) in zip(part, alone, strict=True):
            np.testing.assert_array_equal(mine[0], whole[rank::3])


def test_shuffled_passes_have_every_row(listed):
    _, batches = take(listed, ["label"], 2 * ROWS, shuffle=True)
    passes = np.concatenate([labels for (labels,) in batches])[:2 * ROWS].reshape(2, ROWS)
    for one in passes:
        assert sorted(one) == LABELS.tolist()
    assert passes[0].tolist() != LABELS.tolist()


def test_what_is_wrong_is_told(listed, tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "gone").write_text(f"{tmp_path}/absent.h5")
    (tmp_path / "text").write_text(str(tmp_path / "empty"))
    (tmp_path / "here").write_text(".")
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["data"], file["label"], file["word"] = np.zeros((3, 2)), np.zeros(2), b"text"
    (tmp_path / "odd").write_text(str(tmp_path / "odd.h5"))
    for name, tops, message in (("absent", ["data"], "absent: No such file"), ("empty", ["data"], "is empty"),
                                ("gone", ["data"], "absent.h5: no such file"), ("text", ["data"], "not an HDF5 file"),
                                ("here", ["data"], r"^\.: is a directory \(listed in .*here\)"),
                                ("odd", ["data", "label"], "data has 3, label has 2"),
                                ("odd", ["none"], "no dataset 'none'; it has: data, label, word"),
                                ("odd", ["word"], "must have rows of numbers")):
        with pytest.raises(DataError, match=message):
            take(str(tmp_path / name), tops, 1)


def test_files_of_unlike_rows_are_told(listed, tmp_path):
    with h5py.File(tmp_path / "1.h5", "w") as file:
        file["data"] = np.zeros((2, 9))
    with pytest.raises(DataError, match=r"1\.h5: rows of shapes"):
        take(listed, ["data"], 1)
