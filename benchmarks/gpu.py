"""Everything that is to be measured on a GPU, in one run of at most eight minutes: text as it goes, and JSON.

    python benchmarks/gpu.py [--json FILE] [--peer PYTHON_WITH_TORCH] [--seconds N] [--parts nets,ranks,...]

Parts, in this order: `nets` (images/s of training beside PyTorch with channels_last and cudnn.benchmark; torch.compile
of GoogLeNet, which takes minutes, begins first, beside the choice of our plans), `inference` (forward passes beside
PyTorch's and TensorRT's), `update` (the fused update kernels against the card's own copies), `ranks` (strategies with
ranks that share the card), `collectives` (benchmarks/gpu_collectives.py), `decode` (JPEG files decoded on the card,
their pixels against the host's, and images/s of readers both ways). A part that fails says why in its place, and the
next one runs; what the time no longer allows is named. The JSON is written anew after every row, so what was measured
is there. Behind them `bars`: what is asked on an H200, and whether it is met.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

FETCHED = Path(__file__).resolve().parent
sys.path[:0] = [str(FETCHED.parent), str(FETCHED)]

from gpu_collectives import environment  # noqa: E402
from gpu_parts.bars import shown, verdicts  # noqa: E402
from gpu_parts.preparing import Compilation, Preparing  # noqa: E402
from launcher import mpirun, python  # noqa: E402
from streamed import Streamed  # noqa: E402

from scaffe.layers.kernels import device  # noqa: E402

SLOW = ("googlenet", "resnet50", "vgg16", "caffenet")  # to compile, the slowest first
WAYS = ("sc-b:auto", "sc-ob:auto", "sc-obr:auto", "sc-rs:auto")
SMALL, SMALLS = 32, "reduce-overhead"  # images of a small batch, and torch.compile's way for it
LAST_WORDS = 400  # characters of what a failed command said
LIMITS = {"update": 60, "decode": 60, "ours": 150, "peer": 120, "ranks": 90, "collectives": 100}  # seconds


class Run:
    """The figures so far, and the time that is left.

    Args:
        options: the command line.

    Attributes:
        figures: what the JSON holds.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.figures: dict[str, Any] = {"date": date.today().isoformat()}
        self._end = time.monotonic() + options.seconds

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self._end - time.monotonic()

    def keep(self, part: str, row: dict[str, Any], text: str) -> None:
        """Print a row and write all there are."""
        failed = f"{row.get('what', '')} failed: {row['error']}" if "error" in row else ""
        print(f"{part:12s} {failed or text}", flush=True)
        self.figures.setdefault(part, []).append(row)
        if self.options.json:
            self.options.json.write_text(json.dumps(self.figures, indent=1) + "\n")

    def rows(self, what: str, limit: str, command: list[str]) -> Iterator[dict[str, Any]]:
        """The JSON lines that a command prints, as they come; then one with its error where it fails or is too late."""
        seconds = min(LIMITS[limit], self.left)
        if seconds < 1:
            yield {"what": what, "error": "no time was left"}
            return
        running = Streamed(command, seconds, environment(), FETCHED.parent)
        try:
            for line in running:
                if line.startswith("{") and line.rstrip().endswith("}"):
                    yield json.loads(line)
        except OSError as error:
            yield {"what": what, "error": str(error)}
            return
        if running.is_late:
            yield {"what": what, "error": f"took more than {seconds:.0f} s"}
        elif running.code:
            last = (running.errors.strip().splitlines() or ["no message"])[-1]
            yield {"what": what, "error": f"exit code {running.code}: {last[-LAST_WORDS:]}"}


# -- parts -------------------------------------------------------------------------------------------------
def update(run: Run) -> None:
    """The fused kernels; the bar is 85 % of the bandwidth."""
    command = python(FETCHED / "gpu_parts" / "update.py", "--elems", run.options.elems)
    for row in run.rows("update kernels", "update", command):
        rate, share = row.get("bytes_per_second", 0), row.get("share_of_nominal", 0)
        run.keep("update", row, f"{row.get('rule', ''):9s} {rate / 1e9:7.0f} GB/s, {share:.2f} of the card's nominal "
                                f"bandwidth, {row.get('share_of_copy', 1):.2f} of a copy's")


def decode(run: Run) -> None:
    """JPEG files decoded on the card and on the host."""
    command = python(FETCHED / "gpu_parts" / "decode.py", *run.options.decode.split())
    for row in run.rows("decoding", "decode", command):
        said = row.get("missing") or (f"{row['images_per_second']:9.0f} images/s" if "images_per_second" in row else
                                      f"{row.get('decoded')} of {row.get('files')} files, largest difference "
                                      f"{row.get('largest')}, mean {row.get('mean', 0):.3f}")
        run.keep("decode", row, f"{row.get('what', ''):24s} {said}")


def nets(run: Run) -> None:
    """Ours and PyTorch from the same weights on the same batch. PyTorch's compilations, the longest first, run beside
    the choice of our plans; what is not compiled by then is named, and nothing is measured beside a compilation."""
    options = run.options
    with tempfile.TemporaryDirectory() as folder:
        races = [Race(run, name, precision, Path(folder, f"{name}.npz"))
                 for precision in options.precisions.split(",") for name in options.nets.split(",")]
        small = [Race(run, name, "bf16", Path(folder, f"{name}_small.npz"), SMALL) for name in
                 filter(None, options.small.split(","))]
        slow_first = sorted(races, key=lambda race: SLOW.index(race.name) if race.name in SLOW else len(SLOW))
        for race in (*slow_first, *small) if options.peer else ():
            race.write()
        compiled = [(race, way) for way in options.ways.split(",") for race in slow_first]
        compiled += [(race, SMALLS) for race in small]
        preparing = Preparing([race.compilation(way) for race, way in compiled if options.peer], environment(),
                              FETCHED.parent)
        started = time.monotonic()
        for race in (*races, *small):
            race.choose_plans()
        preparing.finish(min(options.prepare_seconds, run.left) - (time.monotonic() - started))
        for race in (*races, *small):
            race.ours()
            race.torch("eager")
        for race, way in compiled:
            race.torch(way, preparing.why_not(race.what(f"torch {way}")))


class Race:
    """One net in one precision.

    Args:
        run: where the rows go.
        name, precision: the net and what its products are made in.
        file: for batch and weights, which PyTorch takes from ours.
        batch: images; None: the command line's.
        part: what the rows are of.
    """

    def __init__(self, run: Run, name: str, precision: str, file: Path, batch: int | None = None,
                 part: str = "nets") -> None:
        self._run, self.name, self._precision, self._file = run, name, precision, file
        self._batch, self._part = batch or run.options.batch, part
        self._rate = 0.0  # ours

    def what(self, label: str) -> str:
        """A row's name."""
        return f"{self.name} {self._precision} batch {self._batch} {label}"

    def write(self) -> None:
        """Write the file, once."""
        if not self._file.exists():
            for row in self._run.rows(self.what("weights"), "ours", self._ours("--save", self._file)):
                self._keep(row, "weights", "")

    def choose_plans(self) -> None:
        """Have cuDNN's plans timed, which are kept on disk. What fails here fails again, and is told, in ``ours``."""
        for _ in self._run.rows(self.what("plans"), "ours", self._ours("--seconds", 0)):
            pass

    def compilation(self, way: str) -> Compilation:
        """What compiles this net for PyTorch and runs it once."""
        return Compilation(self.what(f"torch {way}"), self._torch(way, 0))

    def ours(self, *flags: str) -> None:
        """Measure ours."""
        command = self._ours("--seconds", self._run.options.round_seconds, *flags)
        for row in self._run.rows(self.what("ours"), "ours", command):
            self._rate = row.get("images_per_second", 0.0)
            self._keep(row, "ours", "")

    def torch(self, way: str, why_not: str = "") -> None:
        """Measure PyTorch, or say why not."""
        if not self._run.options.peer or not self._file.exists():
            return
        label = f"torch {way}"
        rows = [{"error": why_not}] if why_not else self._run.rows(
            self.what(label), "peer", self._torch(way, self._run.options.round_seconds))
        for row in rows:
            rate = row.get("images_per_second")
            self._keep(row, label, f", ours is {self._rate / rate:.2f}x" if rate and self._rate else "")

    def _ours(self, *flags: Any) -> list[str]:
        return python(FETCHED / "gpu_parts" / "ours.py", self.name, "--batch", self._batch, "--precision",
                      self._precision, *flags)

    def _torch(self, way: str, seconds: float) -> list[str]:
        return [self._run.options.peer, str(FETCHED / "peers" / "torch_gpu.py"), self.name, str(self._file),
                self._precision, str(seconds), way]

    def _keep(self, row: dict[str, Any], label: str, ratio: str) -> None:
        what, rate = self.what(label), row.get("images_per_second", 0)
        about = {"net": self.name, "precision": self._precision, "batch": self._batch, "side": label.split()[0],
                 "what": what}
        self._run.keep(self._part, row | about, f"{what:38s} {rate:9.1f} images/s, loss {row.get('loss', 0):.4f}, "
                                                f"{row.get('memory_bytes', 0) / 2**30:.1f} GiB{ratio}")


def inference(run: Run) -> None:
    """Forward of nets in their phase TEST beside PyTorch's and TensorRT's, where the peer has its wheel."""
    with tempfile.TemporaryDirectory() as folder:
        for name in run.options.nets.split(","):
            for batch in map(int, run.options.inference_batches.split(",")):
                race = Race(run, name, "bf16", Path(folder, f"{name}_{batch}.npz"), batch, "inference")
                if run.options.peer:
                    race.write()
                race.ours("--inference")
                for way in ("inference-eager", "inference-compile", "tensorrt"):
                    race.torch(way)


def ranks(run: Run) -> None:
    """Strategies with several ranks on the card."""
    options = run.options
    for n_ranks in map(int, options.ranks.split(",")):
        command = mpirun(n_ranks, FETCHED / "gpu_parts" / "ranks.py", options.nets.split(",")[0], *WAYS,
                         "--batch", options.batch, "--precision", options.precisions.split(",")[0],
                         "--steps", options.steps)
        for row in run.rows(f"{n_ranks} ranks", "ranks", command):
            run.keep("ranks", row, f"{n_ranks} ranks {row.get('way', ''):12s} {row.get('images_per_second', 0):9.1f} "
                                   f"images/s, {row.get('messages_milliseconds', 0):.1f} ms of messages, "
                                   f"{row.get('hidden_milliseconds', 0):.1f} hidden")


def collectives(run: Run) -> None:
    """Reductions over IPC, staged and by NCCL against the card's copies."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        command = python(FETCHED / "gpu_collectives.py", "--json", file, "--ranks", run.options.ranks,
                         "-m", run.options.message_size)
        for row in run.rows("gpu_collectives.py", "collectives", command):
            run.keep("collectives", row, "")
        found = json.loads(file.read_text()) if file.exists() else {"rows": []}
        for row in found["rows"]:
            run.keep("collectives", row, f"{row['ranks']} ranks {row['way']:7s} {row['bytes']:10d} bytes "
                                         f"{row['median_us'] / 1e3:8.3f} ms, {row['share_of_copying']:.2f} of copying")
        for what, why in found.get("missing", {}).items():
            run.keep("collectives", {"what": what, "missing": why}, f"{what}: {why}")


PARTS: dict[str, Callable[[Run], None]] = {"nets": nets, "inference": inference, "update": update, "ranks": ranks,
                                           "collectives": collectives, "decode": decode}


def find_peer() -> str:
    """An interpreter with PyTorch: this one if it has it."""
    done = subprocess.run(python("-c", "import torch"), capture_output=True, check=False)
    return "" if done.returncode else sys.executable


def main() -> int:
    """Run the parts. Returns the exit code: 1 where there is no GPU or where a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--peer", default=find_peer(), help="a Python that has torch; this one where it has")
    parser.add_argument("--seconds", type=float, default=470, help="for everything")
    parser.add_argument("--prepare-seconds", type=float, default=150, help="of them, for what torch.compile compiles")
    parser.add_argument("--ways", default="compile", help="max-autotune too; beside eager")
    parser.add_argument("--small", default="resnet50", help=f"nets to train with {SMALL} images in bf16, too")
    parser.add_argument("--inference-batches", default="1,32")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--nets", default="caffenet,resnet50,googlenet", help="the first one is the ranks' too")
    parser.add_argument("--precisions", default="tf32,bf16", help="the first one is the ranks' too")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--steps", type=int, default=10, help="that the ranks are timed for")
    parser.add_argument("--elems", type=int, default=1 << 26, help="parameters that an update kernel updates")
    parser.add_argument("--decode", default="", help="flags of gpu_parts/decode.py")
    parser.add_argument("--round-seconds", type=float, default=3.0, help="of measuring one net one way")
    parser.add_argument("-m", "--message-size", default="1048576:268435456")
    options = parser.parse_args()
    if missing := device.missing():
        sys.stderr.write(f"gpu: {missing}\n")
        return 1
    run = Run(options)
    run.figures["device"] = device.describe(0)
    print("\n".join(f"# {name}: {value}" for name, value in run.figures["device"].items()))
    if not options.peer:
        print("# no --peer with PyTorch given: ours only")
    for part in options.parts.split(","):
        try:
            PARTS[part](run)
        except Exception as error:  # one call on a lent machine is to bring all the rest back
            run.keep(part, {"what": part, "error": f"{type(error).__name__}: {error}"}, "")
    for row in verdicts(run.figures):
        run.keep("bars", row, shown(row))
    return int(any("error" in row for part in PARTS for row in run.figures.get(part, ())))


if __name__ == "__main__":
    sys.exit(main())
