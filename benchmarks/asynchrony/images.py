"""The example's images as databases, for nets of 1 x 28 x 28 as they are, for nets of 3 x 32 x 32 scaled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scaffe.data.convert.archives import convert_mnist
from scaffe.data.convert.writers import writer_of
from scaffe.data.records.datum import encode_image
from scaffe.data.records.idx import read_idx

PARTS = {"train": "train", "test": "t10k"}


def make_databases(archives: Path, shape: tuple[int, int, int], folder: Path) -> None:
    """Write ``train_lmdb`` and ``test_lmdb`` into ``folder``.

    Args:
        archives: the folder of the four archives in MNIST's format: the example's, or the full set's.
        shape: (1, 28, 28), or (3, height, width): scaled, three times the same grey.
        folder: where the databases go.
    """
    for part, stem in PARTS.items():
        images, labels = archives / f"{stem}-images-idx3-ubyte.gz", archives / f"{stem}-labels-idx1-ubyte.gz"
        if shape[0] == 1:
            convert_mnist(images, labels, folder / f"{part}_lmdb")
            continue
        kinds = read_idx(labels, 1)
        scaled = (scale(image, *shape[1:]) for image in read_idx(images, 3))
        writer_of("lmdb")(folder / f"{part}_lmdb", (
            (b"%08d" % i, encode_image(np.repeat(image[None], shape[0], axis=0), int(kinds[i])))
            for i, image in enumerate(scaled)), False)


def scale(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """An image, uint8 (h, w), at another length of its sides: linear between the centres of pixels."""
    rows, columns = _weights(image.shape[0], height), _weights(image.shape[1], width)
    return np.rint(rows @ image.astype(np.float32) @ columns.T).astype(np.uint8)


def _weights(n_from: int, n_to: int) -> np.ndarray:
    """What each of ``n_to`` pixels takes of each of ``n_from``, float32 (n_to, n_from)."""
    at = np.clip((np.arange(n_to) + 0.5) * n_from / n_to - 0.5, 0, n_from - 1)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(n_from))).astype(np.float32)
