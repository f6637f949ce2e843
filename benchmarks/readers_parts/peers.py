"""Our feeds beside PyTorch's DataLoader and NVIDIA DALI's CPU pipeline, on the same files, with as many workers."""

from __future__ import annotations

import json
import subprocess
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
from figures import Figures, Sample, version

from readers_parts.files import BATCH, CROP, KINDS, MEAN, SCALE, open_feed

HERE = Path(__file__).resolve().parent.parent / "peers"
PEERS = {"cv2": ("raw", "jpeg", "files"), "torchvision": ("jpeg", "files"), "pil": ("jpeg", "files"),
         "dali": ("jpeg", "files")}
"""Each peer's kinds of data."""
MODULES = {"PyTorch": "torch", "torchvision": "torchvision", "OpenCV": "cv2", "Pillow": "PIL", "DALI": "nvidia.dali"}
N_BATCHES = {"raw": 60, "jpeg": 40, "files": 40}
CLOSE = {"cv2": 1e-6, "torchvision": 2e-2, "pil": 2e-2, "dali": 2e-2}  # other decoders, other last places


class Ours:
    """Our feed, of floats as the peers'."""

    def __init__(self, kind: str, folder: Path, n_threads: int, train: bool) -> None:
        self.feed = open_feed(kind, folder, n_threads, train)
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
    """A peer's loader in its own process."""

    def __init__(self, python: str, peer: str, kind: str, folder: Path, n_threads: int, train: bool) -> None:
        script = HERE / ("dali_readers.py" if peer == "dali" else "torch_readers.py")
        options = (peer, kind, folder / KINDS[kind], n_threads, BATCH, CROP, MEAN, SCALE, int(train))
        self._process = subprocess.Popen([python, str(script), *map(str, options)], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        if self._line() != "ready":
            raise SystemExit(f"{peer} did not start")

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


def run(folder: Path, args: Namespace) -> None:
    """Compare sums, then take turns; print a row a pair."""
    note = f"{args.threads} readers, batches of {BATCH} x 3 x {CROP} x {CROP}, {args.rounds} rounds."
    pairs = [(peer, kind) for peer in PEERS if not args.only or peer in args.only for kind in PEERS[peer]]
    versions = {name: version(args.peer, module) for name, module in MODULES.items()}
    columns = ("data, peer", "ours, images/s", "peer", "x")
    with Figures("readers-peers", columns, note, args.keep, {k: v for k, v in versions.items() if v}) as table:
        for peer, kind in pairs:
            _verify(peer, kind, folder, args)
            ours, theirs = _race(peer, kind, folder, args)
            table.add(f"{kind}, {peer}", ours, theirs, ours.median / theirs.median)


def _verify(peer: str, kind: str, folder: Path, args: Namespace) -> None:
    """The same batch has the same sum on both sides."""
    sides = Ours(kind, folder, args.threads, False), Theirs(args.peer, peer, kind, folder, args.threads, False)
    (_, ours), (_, theirs) = (side.read(5) for side in sides)
    for side in sides:
        side.close()
    if abs(ours - theirs) > CLOSE[peer] * abs(theirs) + 1:
        raise SystemExit(f"{peer}, {kind}: the sums of the same batch differ: {ours} and {theirs}")


def _race(peer: str, kind: str, folder: Path, args: Namespace) -> tuple[Sample, Sample]:
    """Records a second, ours and theirs; nobody reads ahead while the other is timed."""
    seconds: dict[type, list[float]] = {Ours: [], Theirs: []}
    for _ in range(args.rounds):
        for side in (Ours(kind, folder, args.threads, True), Theirs(args.peer, peer, kind, folder, args.threads, True)):
            side.read(8)  # past what was read ahead while it started
            seconds[type(side)].append(side.read(N_BATCHES[kind])[0])
            side.close()
    ours, theirs = (Sample([BATCH * N_BATCHES[kind] / s for s in seconds[side]]) for side in (Ours, Theirs))
    return ours, theirs
