"""MNIST's archives (and those in its format, Fashion-MNIST for one) into an LMDB."""

from __future__ import annotations

from pathlib import Path

from scaffe.data.convert.writers import writer_of
from scaffe.data.errors import DataError
from scaffe.data.records.datum import encode_image
from scaffe.data.records.idx import read_idx


def convert_mnist(images_path: str | Path, labels_path: str | Path, db_path: str | Path, force: bool = False,
                  backend: str = "lmdb") -> int:
    """Write an images file and a labels file, gzipped or plain IDX, as an LMDB or LevelDB; returns how many records.

    Records are Datums of 1 x height x width uint8 under keys of 8 digits, as ``convert_mnist_data`` of Caffe 1.0
    writes them.

    Raises:
        DataError: a file is missing or damaged, the two do not match, or the folder exists and ``force`` is not given.
    """
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(images) != len(labels):
        raise DataError(f"{images_path} has {len(images)} images but {labels_path} has {len(labels)} labels")
    records = ((b"%08d" % i, encode_image(images[i][None], int(labels[i]))) for i in range(len(images)))
    return writer_of(backend)(db_path, records, force)
