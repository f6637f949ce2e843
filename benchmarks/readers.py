"""Records per second of our feeds against PyTorch's DataLoader, on the same files, decoder and cores.

    python benchmarks/readers.py --peer PYTHON_WITH_TORCH [--threads N] [--rounds N]

PYTHON_WITH_TORCH needs torch, lmdb and opencv-python-headless. First both read with the crop in the middle and the
sums of a batch are compared; then both crop and mirror at random and take turns; the ratio is of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scaffe.data.convert.writers import write_lmdb  # noqa: E402
from scaffe.data.feeds.feed import Feed, Plan, ReaderOptions  # noqa: E402
from scaffe.data.feeds.image_feed import image_feed  # noqa: E402
from scaffe.data.order.orders import InOrder  # noqa: E402
from scaffe.data.order.share import visits_in_training  # noqa: E402
from scaffe.data.records.datum import encode_image  # noqa: E402
from scaffe.data.records.decode import opencv  # noqa: E402
from scaffe.data.records.transform import Transform, TransformOptions  # noqa: E402
from scaffe.data.sources.image_list import ImageListSource  # noqa: E402
from scaffe.data.sources.lmdb import LmdbSource  # noqa: E402

BATCH, CROP, MEAN, SCALE, SIDE = 64, 227, 104.0, 1 / 128, 256
PEER = Path(__file__).parent / "peers" / "torch_readers.py"


def make_files(folder: Path, n_images: int) -> None:
    """JPEG files of 256 x 256 of natural detail, their list, and an LMDB of their pixels."""
    cv2 = opencv()
    rng = np.random.default_rng(0)
    records = []
    for i in range(n_images):
        rough = rng.integers(0, 256, (32, 32, 3), np.uint8)
        image = cv2.resize(rough, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        noise = rng.integers(-12, 13, image.shape, np.int16)
        path = folder / f"{i:05d}.jpg"
        image = np.clip(image + noise, 0, 255).astype(np.uint8)
        cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 90])
        records.append((b"%08d" % i, encode_image(np.moveaxis(image, -1, 0), i % 100)))
    (folder / "list.txt").write_text("".join(f"{folder}/{i:05d}.jpg {i % 100}\n" for i in range(n_images)))
    write_lmdb(folder / "lmdb", records)


def path_of(kind: str, folder: Path) -> Path:
    """What a source of this kind opens."""
    return folder / ("lmdb" if kind == "lmdb" else "list.txt")


class Ours:
    """Our feed."""

    def __init__(self, kind: str, folder: Path, n_threads: int, train: bool) -> None:
        path = path_of(kind, folder)
        source = LmdbSource(path) if kind == "lmdb" else ImageListSource(path)
        options = TransformOptions(SCALE, train, CROP, (MEAN,), random_crop=train)
        plan = Plan(visits_in_training(BATCH, 0, 1), BATCH, InOrder(source.n_records))
        self.feed: Feed = image_feed(source, plan, Transform(options), options=ReaderOptions(n_threads))
        self.feed.next()

    def read(self, n_batches: int) -> tuple[float, float]:
        """Seconds for so many batches, and the sum of the last."""
        start = time.perf_counter()
        for _ in range(n_batches):
            images, labels = self.feed.next()
        seconds = time.perf_counter() - start
        return seconds, float(images.sum(dtype=np.float64) + labels.sum())

    def close(self) -> None:
        """End the readers."""
        self.feed.close()


class Theirs:
    """PyTorch's loader in its own process."""

    def __init__(self, peer: str, kind: str, folder: Path, n_threads: int, train: bool) -> None:
        options = (n_threads, BATCH, CROP, MEAN, SCALE, int(train))
        command = [peer, str(PEER), kind, str(path_of(kind, folder)), *map(str, options)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._line() != "ready":
            raise SystemExit("the peer did not start")

    def read(self, n_batches: int) -> tuple[float, float]:
        """Seconds for so many batches, and the sum of the last."""
        self._process.stdin.write(f"{n_batches}\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        answer = json.loads(self._line())
        return answer["seconds"], answer["total"]

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)

    def _line(self) -> str:
        return self._process.stdout.readline().strip()  # type: ignore[union-attr]


def verify(peer: str, kind: str, folder: Path, n_threads: int) -> None:
    """The same batch has the same sum on both sides."""
    sides = Ours(kind, folder, n_threads, False), Theirs(peer, kind, folder, n_threads, False)
    (_, ours), (_, theirs) = (side.read(5) for side in sides)
    for side in sides:
        side.close()
    if abs(ours - theirs) > 1e-6 * abs(theirs) + 1:
        raise SystemExit(f"{kind}: the sums of the same batch differ: {ours} and {theirs}")


def race(peer: str, kind: str, folder: Path, n_threads: int, rounds: int, n_batches: int) -> tuple[float, float]:
    """Median records per second, ours and theirs, taking turns; nobody reads ahead while the other is timed."""
    seconds: dict[type, list[float]] = {Ours: [], Theirs: []}
    for _ in range(rounds):
        for side in (Ours(kind, folder, n_threads, True), Theirs(peer, kind, folder, n_threads, True)):
            side.read(8)  # past what was read ahead while it started
            seconds[type(side)].append(side.read(n_batches)[0])
            side.close()
    ours, theirs = (BATCH * n_batches / median(seconds[side]) for side in (Ours, Theirs))
    return ours, theirs


def main() -> None:
    """Run both kinds and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python with torch, lmdb and OpenCV")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="readers on either side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=1024)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder, args.images)
        print(f"# {args.threads} readers, batches of {BATCH} x 3 x {CROP} x {CROP}, {args.rounds} rounds")
        print(f"{'source':10s} {'ours/s':>10s} {'torch/s':>10s} {'ratio':>7s}")
        for kind, n_batches in (("lmdb", 60), ("images", 40)):
            verify(args.peer, kind, folder, args.threads)
            ours, theirs = race(args.peer, kind, folder, args.threads, args.rounds, n_batches)
            print(f"{kind:10s} {ours:10.0f} {theirs:10.0f} {ours / theirs:7.2f}", flush=True)


if __name__ == "__main__":
    main()
