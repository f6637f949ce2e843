"""PyTorch's DataLoader over the same data, in its own interpreter; driven by ``benchmarks/readers.py``.

    python torch_readers.py KIND PATH WORKERS BATCH CROP MEAN SCALE TRAIN

Prints ``ready``; then, for every line "N_BATCHES" on its input, reads that many batches and prints their seconds and
the sum of the last one as JSON. Decoder, colour order and arithmetic are the ones of Caffe's layers.
"""

import json
import sys
import time
from pathlib import Path

import cv2
import lmdb
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Samples(Dataset):
    """One transformed sample an index."""

    def __init__(self, crop, mean, scale, train):
        self.crop, self.mean, self.scale, self.train = crop, mean, scale, train

    def transform(self, planes):
        """A tensor of the cropped, perhaps mirrored (C, H, W) pixels."""
        rows, columns = planes.shape[1] - self.crop, planes.shape[2] - self.crop
        top, left = rows // 2, columns // 2
        if self.train:
            top, left = np.random.randint(rows + 1), np.random.randint(columns + 1)
        window = planes[:, top:top + self.crop, left:left + self.crop]
        if self.train and np.random.randint(2):
            window = window[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(window)).float().sub_(self.mean).mul_(self.scale)


class Lmdb(Samples):
    """Raw Datum records of one shape; the fields lie where they lie in the first."""

    def __init__(self, path, *options):
        super().__init__(*options)
        self.path, self.env = path, None
        with lmdb.open(path, readonly=True, lock=False) as env, env.begin() as transaction:
            self.n_records = env.stat()["entries"]
            cursor = transaction.cursor()
            cursor.first()
            self.n_key = len(cursor.key())

    def __len__(self):
        return self.n_records

    def __getitem__(self, index):
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
            self.transaction = self.env.begin(buffers=True)
        value = self.transaction.get(b"%0*d" % (self.n_key, index))
        # a 3 x 256 x 256 Datum: 1 + 1, 1 + 2, 1 + 2 bytes of shape, 1 + 3 before the pixels, then tag and label
        planes = np.frombuffer(value, np.uint8, 3 * 256 * 256, 12).reshape(3, 256, 256)
        return self.transform(planes), value[12 + planes.size + 1]


class Images(Samples):
    """Image files of a list."""

    def __init__(self, path, *options):
        super().__init__(*options)
        lines = Path(path).read_text().splitlines()
        self.items = [(name, int(label)) for name, label in (line.rsplit(" ", 1) for line in lines)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        name, label = self.items[index]
        return self.transform(np.moveaxis(cv2.imread(name), -1, 0)), label


class Endless(Sampler):
    """All indices in order, again and again."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        while True:
            yield from range(self.n)


def one_thread(_):
    """In each worker: no threads beside it, and draws of its own."""
    cv2.setNumThreads(0)
    np.random.seed(torch.initial_seed() % (1 << 32))


def main(kind, path, n_workers, batch, crop, mean, scale, train):
    """Serve timings until the input ends."""
    samples = {"lmdb": Lmdb, "images": Images}[kind](path, int(crop), float(mean), float(scale), train == "1")
    loader = iter(DataLoader(samples, int(batch), sampler=Endless(len(samples)), num_workers=int(n_workers),
                             worker_init_fn=one_thread))
    next(loader)
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            images, labels = next(loader)
        seconds = time.perf_counter() - start
        total = float(images.double().sum()) + float(labels.sum())
        print(json.dumps({"seconds": seconds, "total": total}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
