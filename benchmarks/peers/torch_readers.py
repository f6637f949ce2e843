"""PyTorch's DataLoader over the same data, in its own interpreter; driven by ``benchmarks/readers.py``.

    python torch_readers.py DECODER KIND PATH WORKERS BATCH CROP MEAN SCALE TRAIN

Prints ``ready``; then, for every line "N_BATCHES" on its input, reads that many batches and prints their seconds and
the sum of the last one as JSON. Colour order and arithmetic are the ones of Caffe's layers; DECODER is cv2, torchvision
or pil.
"""

import io
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
        return self.sample(self.transaction.get(b"%0*d" % (self.n_key, index)))

    def sample(self, value):
        """The transformed image, and its label."""
        # a 3 x 256 x 256 Datum: 1 + 1, 1 + 2, 1 + 2 bytes of shape, 1 + 3 before the pixels, then tag and label
        planes = np.frombuffer(value, np.uint8, 3 * 256 * 256, 12).reshape(3, 256, 256)
        return self.transform(planes), value[12 + planes.size + 1]


def by_cv2(content):
    """uint8 planes, blue first."""
    return np.moveaxis(cv2.imdecode(np.frombuffer(content, np.uint8), 1), -1, 0)


def by_torchvision(content):
    """The same, by torchvision's decode_jpeg."""
    from torchvision.io import decode_jpeg

    return decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8)).numpy()[::-1]


def by_pil(content):
    """The same, by Pillow."""
    from PIL import Image

    return np.moveaxis(np.asarray(Image.open(io.BytesIO(content)).convert("RGB")), -1, 0)[::-1]


DECODERS = {"cv2": by_cv2, "torchvision": by_torchvision, "pil": by_pil}


class Jpegs(Lmdb):
    """Datum records that hold JPEG files: the length of the file after a byte, then the file, a byte and the label."""

    def __init__(self, path, decode, *options):
        super().__init__(path, *options)
        self.decode = decode

    def sample(self, value):
        """The transformed image, and its label."""
        n_bytes = shift = 0
        for at in range(1, 6):
            n_bytes |= (value[at] & 127) << shift
            shift += 7
            if value[at] < 128:
                break
        content = value[at + 1:at + 1 + n_bytes]
        return self.transform(self.decode(content)), value[at + 1 + n_bytes + 1]


class Images(Samples):
    """Image files of a list."""

    def __init__(self, path, decode, *options):
        super().__init__(*options)
        self.decode = decode
        lines = Path(path).read_text().splitlines()
        self.items = [(name, int(label)) for name, label in (line.rsplit(" ", 1) for line in lines)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        name, label = self.items[index]
        return self.transform(self.decode(Path(name).read_bytes())), label


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


def samples_of(decoder, kind, path, *options):
    """The data set of one kind of data."""
    if kind == "raw":
        return Lmdb(path, *options)
    return {"jpeg": Jpegs, "files": Images}[kind](path, DECODERS[decoder], *options)


def main(decoder, kind, path, n_workers, batch, crop, mean, scale, train):
    """Serve timings until the input ends."""
    samples = samples_of(decoder, kind, path, int(crop), float(mean), float(scale), train == "1")
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
