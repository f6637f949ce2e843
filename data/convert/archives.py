"""Converts MNIST's and CIFAR-10's archives to databases (Caffe 1.0, convert_mnist_data, convert_cifar_data)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scaffe.data.convert.writers import writer_of
from scaffe.data.records.datum import encode_image
from scaffe.data.records.decode import file_bytes
from scaffe.data.records.idx import read_idx
from scaffe.errors import DataError


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


SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32  # the label, then the three colour planes
PARTS = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}


def read_cifar(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Read one binary file.

    Returns:
        Images, uint8 (n, 3, 32, 32), red first, and labels, uint8 (n,).

    Raises:
        DataError: the file is missing, or does not hold a whole number of records, at least one.
    """
    content = file_bytes(path)
    if content.size == 0 or content.size % RECORD_BYTES:
        raise DataError(f"{path}: expected records of {RECORD_BYTES} bytes, found {content.size} bytes")
    records = content.reshape(-1, RECORD_BYTES)
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]


def convert_cifar(input_folder: str | Path, output_folder: str | Path, force: bool = False,
                  backend: str = "lmdb") -> dict[str, int]:
    """Write the databases ``cifar10_train_BACKEND`` and ``cifar10_test_BACKEND``; keys have 5 digits, as Caffe's.

    Args:
        input_folder: holds the binary files ``data_batch_1.bin`` ... and ``test_batch.bin``.
        output_folder: where the databases are made.
        force: replace databases that exist.
        backend: lmdb or leveldb.

    Returns:
        Number of records of each part, "train" and "test".

    Raises:
        DataError: an input file is missing or damaged, or a database exists and ``force`` is not given.
    """
    n_records = {}
    for part, names in PARTS.items():
        loaded = [read_cifar(Path(input_folder) / name) for name in names]
        images, labels = (np.concatenate(arrays) for arrays in zip(*loaded, strict=True))
        records = ((b"%05d" % i, encode_image(images[i], int(labels[i]))) for i in range(len(images)))
        n_records[part] = writer_of(backend)(Path(output_folder) / f"cifar10_{part}_{backend}", records, force)
    return n_records
