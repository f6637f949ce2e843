"""Converts MNIST's archives, or others in the same format such as Fashion-MNIST, to a database."""

from __future__ import annotations

from pathlib import Path

from scaffe.data.convert.writers import writer_of
from scaffe.data.errors import DataError
from scaffe.data.records.datum import encode_image
from scaffe.data.records.idx import read_idx


def convert_mnist(images_path: str | Path, labels_path: str | Path, db_path: str | Path, force: bool = False,
                  backend: str = "lmdb") -> int:
    """Write the images and labels of two IDX files as Datum records.

    Images are uint8 (1, height, width), keys have 8 digits, as ``convert_mnist_data`` of Caffe 1.0 writes them.

    Args:
        images_path, labels_path: IDX files, plain or gzipped.
        db_path: the database's folder, which is made.
        force: replace the folder if it exists.
        backend: lmdb or leveldb.

    Returns:
        Number of records written.

    Raises:
        DataError: a file is missing or damaged, the two do not match, or the folder exists and ``force`` is not given.
    """
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(images) != len(labels):
        raise DataError(f"{images_path} has {len(images)} images but {labels_path} has {len(labels)} labels")
    records = ((b"%08d" % i, encode_image(images[i][None], int(labels[i]))) for i in range(len(images)))
    return writer_of(backend)(db_path, records, force)
