"""CIFAR-10's binary archives into two LMDBs (format: Krizhevsky's CIFAR page; Caffe 1.0, convert_cifar_data)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scaffe.data.convert.writers import writer_of
from scaffe.data.errors import DataError
from scaffe.data.records.datum import encode_image
from scaffe.data.records.decode import file_bytes

SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32  # the label, then the planes
PARTS = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}


def read_cifar(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Images, uint8 (n, 3, 32, 32), red first, and labels, uint8 (n,), of one binary file.

    Raises:
        DataError: the file is missing, or is not a whole number of records.
    """
    content = file_bytes(path)
    if content.size == 0 or content.size % RECORD_BYTES:
        raise DataError(f"{path}: expected records of {RECORD_BYTES} bytes, found {content.size} bytes")
    records = content.reshape(-1, RECORD_BYTES)
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]


def convert_cifar(input_folder: str | Path, output_folder: str | Path, force: bool = False,
                  backend: str = "lmdb") -> dict[str, int]:
    """Write ``cifar10_train_lmdb`` and ``cifar10_test_lmdb`` (or ``_leveldb``) into a folder; returns the records of
    each part.

    Keys have 5 digits, as Caffe's.

    Raises:
        DataError: an archive is missing or damaged, or a database exists and ``force`` is not given.
    """
    n_records = {}
    for part, names in PARTS.items():
        loaded = [read_cifar(Path(input_folder) / name) for name in names]
        images, labels = (np.concatenate(arrays) for arrays in zip(*loaded, strict=True))
        records = ((b"%05d" % i, encode_image(images[i], int(labels[i]))) for i in range(len(images)))
        n_records[part] = writer_of(backend)(Path(output_folder) / f"cifar10_{part}_{backend}", records, force)
    return n_records
