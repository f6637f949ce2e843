"""The data that all sides read: one set of images as raw records, as JPEG records and as JPEG files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scaffe.data.convert.writers import write_lmdb
from scaffe.data.feeds.feed import Feed, Plan, ReaderOptions
from scaffe.data.feeds.image_feed import image_feed
from scaffe.data.order.orders import InOrder
from scaffe.data.order.share import visits_in_training
from scaffe.data.records.datum import encode_file, encode_image
from scaffe.data.records.decode import opencv
from scaffe.data.records.transform import Transform, TransformOptions
from scaffe.data.sources.image_list import ImageListSource
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.data.sources.source import Source

BATCH, CROP, MEAN, SCALE, SIDE, QUALITY = 64, 227, 104.0, 1 / 128, 256, 90
KINDS = {"raw": "raw", "jpeg": "jpeg", "files": "list.txt"}
"""Of the data: where each lies in the folder."""


def make_files(folder: Path, n_images: int) -> None:
    """Images of 256 x 256 of natural detail, some 28 KB each as JPEG."""
    cv2, rng = opencv(), np.random.default_rng(0)
    raw, jpeg = [], []
    for i in range(n_images):
        rough = rng.integers(0, 256, (32, 32, 3), np.uint8)
        smooth = cv2.resize(rough, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        image = np.clip(smooth + rng.integers(-12, 13, smooth.shape, np.int16), 0, 255).astype(np.uint8)
        content = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
        (folder / f"{i:05d}.jpg").write_bytes(content)
        raw.append((b"%08d" % i, encode_image(np.moveaxis(image, -1, 0), i % 100)))
        jpeg.append((b"%08d" % i, encode_file(content, i % 100)))
    (folder / "list.txt").write_text("".join(f"{folder}/{i:05d}.jpg {i % 100}\n" for i in range(n_images)))
    write_lmdb(folder / "raw", raw)
    write_lmdb(folder / "jpeg", jpeg)


def open_feed(kind: str, folder: Path, n_threads: int, train: bool = True, pixels: bool = False,
              depth: int = 4) -> Feed:
    """Our feed of one kind of data; ``pixels``: as the trainer has it, whose kernels make floats of bytes."""
    path = folder / KINDS[kind]
    source: Source = ImageListSource(path) if kind == "files" else LmdbSource(path)
    options = TransformOptions(SCALE, train, CROP, (MEAN,), random_crop=train)
    plan = Plan(visits_in_training(BATCH, 0, 1), BATCH, InOrder(source.n_records))
    return image_feed(source, plan, Transform(options), depth, ReaderOptions(n_threads, gives_pixels=pixels))
