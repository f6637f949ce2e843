"""HDF5 files of a HDF5Data layer."""

from __future__ import annotations

import random
from pathlib import Path

import h5py
import numpy as np

from scaffe.data.feeds.layer_feed import TRAIN, ReaderOptions, Share, open_layer_feed
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.layers import draw, layer
from tests.fuzz.mutators.plain import flip_bits, write_number


def seeds(folder: Path) -> list[Files]:
    """Contiguous, compressed, and the new form of the format."""
    found = []
    packed = {"shuffle": True, "chunks": (2, 3), "compression": "gzip", "fletcher32": True}
    for number, (options, version) in enumerate([({}, "earliest"), (packed, "earliest"), (packed, "latest")]):
        path = folder / f"{number}.h5"
        with h5py.File(path, "w", libver=version) as file:
            file.create_dataset("data", data=np.arange(24.0).reshape(8, 3), **options)
            file["label"] = np.arange(8)
            file.create_group("more")
        found.append({"list": b"a.h5\n", "a.h5": path.read_bytes()})
    return found


def in_the_head(rng: random.Random, content: bytes) -> bytes:
    """The file's structures, most of which lie in its first 3 KB."""
    n_bytes = min(len(content), 3000)
    change = rng.choice([flip_bits, write_number])
    return change(rng, content[:n_bytes]) + content[n_bytes:]


def read(folder: Path) -> None:
    """As HDF5Data does, in order and shuffled."""
    for shuffle in ("false", "true"):
        param = layer(f'type: "HDF5Data" top: "data" top: "label" hdf5_data_param {{ source: "{folder}/list" '
                      f'batch_size: 5 shuffle: {shuffle} }}')
        feed = open_layer_feed(param, TRAIN, Share(), draw, ReaderOptions(0))
        for _ in range(3):
            feed.next()


KIND = Kind(seeds, read, one_file(in_the_head))
