"""Images per second of inference through the Python interface, against ONNX Runtime and OpenCV's dnn.

    python benchmarks/inference.py [--peer PYTHON] [--batch N] [--threads N] [--rounds N] [--cpu] [NET ...]

The peer's Python has onnxruntime and opencv-python-headless; ours has onnx, by which the same net with the same
weights goes to them. First the outputs are compared, then all take turns; ratios are of median times. Without a peer,
ours only. On a busy machine ``--cpu`` takes the processor's time, of all threads, instead of what passes on the wall.
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

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from figures import Cell, Figures, Sample, add_flag, version  # noqa: E402
from nets.prototxt import deploy  # noqa: E402

import scaffe  # noqa: E402
from scaffe.export import onnx_model  # noqa: E402
from scaffe.layers.base.layer import TEST  # noqa: E402
from scaffe.pycaffe import process  # noqa: E402

ENVIRONMENT = dict(os.environ)
PEER = Path(__file__).parent / "peers" / "inference.py"
NETS = ("caffenet", "googlenet", "resnet50", "vgg16", "mobilenet")
TOLERANCE, ROUND_SECONDS = 1e-3, 0.3
COLUMNS = ("net", "ours, images/s", "ONNX Runtime", "OpenCV", "x ONNX Runtime", "x OpenCV")


class Ours:
    """The net through ``scaffe.Net``, with weights and statistics drawn so that activations stay near 1."""

    def __init__(self, name: str, batch: int, folder: Path, clock: str) -> None:
        self._clock = getattr(time, clock)
        path = folder / "deploy.prototxt"
        path.write_text(deploy(name, batch))
        self.net = scaffe.Net(str(path), TEST)
        rng = np.random.default_rng(1)
        for layer in self.net.layers:
            if layer.type == "BatchNorm":
                mean, variance, total = layer.blobs
                mean.data[...] = 0.1 * rng.standard_normal(mean.shape)
                variance.data[...], total.data[...] = rng.uniform(0.5, 1.5, variance.shape), 1
        self.x = rng.standard_normal(self.net.blobs["data"].shape, np.float32)
        self.net.blobs["data"].data[...] = self.x

    def forward(self, n_passes: int) -> float:
        """Run so many passes. Returns the seconds."""
        start = self._clock()
        for _ in range(n_passes):
            self.net.forward()
        return self._clock() - start


class Theirs:
    """A peer in a process of its own."""

    def __init__(self, python: str, kind: str, folder: Path, n_threads: int, clock: str) -> None:
        self.kind, output = kind, folder / f"{kind}.npy"
        self._process = subprocess.Popen(
            [python, str(PEER), kind, str(folder / "net.onnx"), str(folder / "x.npy"), str(n_threads), str(output),
             clock],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self._answer()
        self.output = np.load(output)

    def forward(self, n_passes: int) -> float:
        """Run so many passes. Returns the seconds."""
        print(n_passes, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)

    def _answer(self) -> float:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit(f"{self.kind} stopped; its own message stands above")
        return json.loads(line)


def compare(name: str, batch: int, n_threads: int, peer: str, n_rounds: int, clock: str) -> list[Cell]:
    """One row, as COLUMNS."""
    process.kernels().set_threads(n_threads)
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(name, batch, Path(folder), clock)
        mine = ours.net.forward()["prob"].copy()
        sides: list[Ours | Theirs] = [ours]
        if peer:
            (Path(folder) / "net.onnx").write_bytes(onnx_model(ours.net._net).SerializeToString())
            np.save(Path(folder) / "x.npy", ours.x)
            sides += [Theirs(peer, kind, Path(folder), n_threads, clock) for kind in ("ort", "opencv")]
        for side in sides[1:]:
            if not np.allclose(mine, side.output.reshape(mine.shape), rtol=TOLERANCE, atol=1e-6):  # type: ignore[union-attr]
                raise SystemExit(f"{name}: our output and that of {side.kind} differ")  # type: ignore[union-attr]
        return [f"{name}, {batch} image{'s' * (batch > 1)}", *_race(sides, batch, n_rounds)]


def _race(sides: list[Ours | Theirs], batch: int, n_rounds: int) -> list[Cell]:
    n_passes = [max(round(ROUND_SECONDS / side.forward(1)), 1) for side in sides]
    seconds = [[_turn(side, n) for side, n in zip(sides, n_passes, strict=True)] for _ in range(n_rounds)]
    mine, *others = zip(*seconds, strict=True)
    for side in sides[1:]:
        side.close()  # type: ignore[union-attr]
    rates: list[Cell] = [Sample([batch / s for s in column]) for column in (mine, *others)]
    ratios: list[Cell] = [median(column) / median(mine) for column in others]
    return [*rates, *ratios] if others else [*rates, *[None] * (len(COLUMNS) - 2)]


def _turn(side: Ours | Theirs, n_passes: int) -> float:
    """Seconds of a pass. One more goes before, for other sides' turns have emptied the caches, and a virtual machine's
    page tables."""
    side.forward(1)
    return side.forward(n_passes) / n_passes


def main() -> None:
    """Race on the nets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", default=NETS, metavar="NET")
    parser.add_argument("--peer", default="", help="a Python with onnxruntime and OpenCV")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu", action="store_true", help="processor time, for a busy machine")
    add_flag(parser)
    options = parser.parse_args()
    clock = "process_time" if options.cpu else "perf_counter"
    peers = {"ONNX Runtime": "onnxruntime", "OpenCV": "cv2"} if options.peer else {}
    versions = {name: version(options.peer, module) for name, module in peers.items()}
    threads = f"{options.threads} thread{'s' * (options.threads > 1)}"
    note = f"{threads}, medians of {options.rounds} rounds{', processor time' * options.cpu}."
    with Figures("inference", COLUMNS, note, options.keep, versions, str(options.threads)) as table:
        for name in options.nets:
            for batch in options.batch:
                table.add(*compare(name, batch, options.threads, options.peer, options.rounds, clock))


if __name__ == "__main__":
    main()
