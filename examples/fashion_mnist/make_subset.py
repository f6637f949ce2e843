"""Makes the four files beside this one from the whole of Fashion-MNIST: the first images of each class, in file order.

    python examples/fashion_mnist/make_subset.py FOLDER_WITH_THE_FULL_SET
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from scaffe.data.records.idx import read_idx, write_idx

PARTS = {"train": 600, "t10k": 100}  # images of each of the 10 classes
N_CLASSES = 10


def first_of_each_class(labels: np.ndarray, n_each: int) -> np.ndarray:
    """Positions of the first n_each images of every class, ascending."""
    firsts = [np.flatnonzero(labels == label)[:n_each] for label in range(N_CLASSES)]
    return np.sort(np.concatenate(firsts))


def main(full_set: str) -> None:
    """Write the subset's four files."""
    here = Path(__file__).parent
    for part, n_each in PARTS.items():
        images_name, labels_name = f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"
        labels = read_idx(Path(full_set) / labels_name, 1)
        chosen = first_of_each_class(labels, n_each)
        write_idx(here / images_name, read_idx(Path(full_set) / images_name, 3)[chosen])
        write_idx(here / labels_name, labels[chosen])


if __name__ == "__main__":
    main(sys.argv[1])
