"""JPEG files decoded on a GPU and on the host: how far pixels differ, and images a second, a line of JSON each.

    python benchmarks/gpu_parts/decode.py [--images N] [--seconds S] [--readers 1,4,...]

The images have 40 to 500 rows and columns, qualities of 50 to 95, and colours sampled in three ways. Rates are of feeds
that crop images of 256 x 256 from an LMDB, as they come to the net.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from readers_parts.files import CROP, MEAN, SCALE, make_files  # noqa: E402

from scaffe.data.feeds.feed import Feed, Plan, ReaderOptions  # noqa: E402
from scaffe.data.feeds.image_feed import image_feed  # noqa: E402
from scaffe.data.order.orders import InOrder  # noqa: E402
from scaffe.data.order.share import visits_in_training  # noqa: E402
from scaffe.data.records.decode import Colour, decode, opencv  # noqa: E402
from scaffe.data.records.transform import Transform, TransformOptions  # noqa: E402
from scaffe.data.sources.lmdb import LmdbSource  # noqa: E402
from scaffe.errors import LayerError  # noqa: E402
from scaffe.layers.kernels import cuda, device  # noqa: E402

DEPTH = 4
SAMPLINGS = {"444": 0x111111, "422": 0x211111, "420": 0x221111}  # OpenCV's numbers


def pictures(n_images: int) -> Iterator[tuple[str, np.ndarray]]:
    """Files of natural detail, each with how its colours are sampled."""
    cv2, rng = opencv(), np.random.default_rng(0)
    for i in range(n_images):
        name, (height, width) = list(SAMPLINGS)[i % len(SAMPLINGS)], rng.integers(40, 501, 2).tolist()
        smooth = cv2.resize(rng.integers(0, 256, (32, 32, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
        image = np.clip(smooth + rng.integers(-12, 13, smooth.shape, np.int16), 0, 255).astype(np.uint8)
        options = [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(50, 96)), cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
                   SAMPLINGS[name]]
        yield name, cv2.imencode(".jpg", image, options)[1].reshape(-1)


def differences(decoder: Any, n_images: int) -> Iterator[dict[str, Any]]:
    """A row for each way of sampling: pixels of the device's images against the host's."""
    found: dict[str, list[np.ndarray | None]] = {name: [] for name in SAMPLINGS}
    for name, file in pictures(n_images):
        expected = decode(file, Colour.BGR)
        if expected is None:
            raise ValueError("the host decodes no file of its own")
        out = decoder.empty(expected.size).reshape(1, *expected.shape)
        nothing = np.zeros((1, 2), np.int64)
        is_done = decoder.decode([file], np.array([expected.shape[:2]]), nothing, nothing[:, 0], out).all()
        found[name].append(np.abs(out.get()[0].astype(int) - expected) if is_done else None)
    for name, parts in found.items():
        all_of = np.concatenate([part.reshape(-1) for part in parts if part is not None] or [np.zeros(1)])
        yield {"what": f"pixels {name}", "files": len(parts), "decoded": sum(part is not None for part in parts),
               "largest": int(all_of.max()), "mean": float(all_of.mean()), "equal": float((all_of == 0).mean()),
               "above_2": float((all_of > 2).mean()), "first_error": decoder.first_error}


def open_feed(folder: Path, n_threads: int, device: Any, batch: int) -> Feed:
    """As the trainer has it."""
    source, options = LmdbSource(folder / "jpeg"), TransformOptions(SCALE, True, CROP, (MEAN,), random_crop=True)
    plan = Plan(visits_in_training(batch, 0, 1), batch, InOrder(source.n_records))
    reading = ReaderOptions(n_threads, allocate=cuda.batch_allocator(), gives_pixels=True, device=device)
    return image_feed(source, plan, Transform(options), DEPTH, reading)


def rate(feed: Feed, seconds: float, batch: int) -> float:
    """Images a second, after the batches that are made ahead."""
    for _ in range(DEPTH + 2):
        feed.next()
    n_batches, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds or not n_batches:
        feed.next()
        n_batches += 1
    found = n_batches * batch / (time.perf_counter() - start)
    feed.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200, help="whose pixels are compared")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each rate")
    parser.add_argument("--readers", default="1,2,4,8,14")
    parser.add_argument("--records", type=int, default=1024, help="in the LMDB")
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    device.load()
    try:
        decoder = cuda.image_decoder()
    except LayerError as error:
        print(json.dumps({"what": "decoder", "missing": str(error)}))
        return
    for row in differences(decoder, options.images):
        print(json.dumps(row), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), options.records)
        for place, n_threads in product(("gpu", "host"), map(int, options.readers.split(","))):
            feed = open_feed(Path(folder), n_threads, decoder if place == "gpu" else None, options.batch)
            found = rate(feed, options.seconds, options.batch)
            print(json.dumps({"what": f"-decode {place}, {n_threads} readers", "images_per_second": found,
                              "first_error": decoder.first_error}), flush=True)


if __name__ == "__main__":
    main()
