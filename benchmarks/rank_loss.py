"""What lost ranks cost: an iteration's time where none is lost, and the seconds until the next one where one is.

    python benchmarks/rank_loss.py [--ranks 2] [--strategy sc-b] [--pairs 12] [--iterations 400] [--on-loss shrink]
    python benchmarks/rank_loss.py --peer PYTHON_WITH_TORCH [--ranks 4] [--strategy sc-b] [--pairs 7]

The first trains LeNet on the example's images with -on_rank_loss and without it (then mpirun has no fault tolerance
either), in turn, and prints for each run the lower quartile of its iterations' times. It compares the lower quartiles
of all runs on either side, and says between which bounds 90 % of the comparisons lie where runs are drawn again from
those that there were: other programs make iterations longer, and whole runs by up to a quarter, never shorter. The
second trains a net of two layers on made-up numbers, kills a rank in each run, and prints the longest time without a
new iteration: of -on_rank_loss shrink and replace, and of PyTorch's elastic launcher, which starts all ranks anew from
a checkpoint of every 20th iteration.
Variables of mpi.env are taken from the environment.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import launcher  # noqa: F401 - this process and its children find scaffe
from figures import Figures, Sample, add_flag, version

from scaffe.data.convert.archives import convert_mnist

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "fashion_mnist"
WITH = {"stop": [], "shrink": ["--with-ft", "ulfm"], "replace": ["--with-ft", "ulfm"]}
SOLVER = ('net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: {} random_seed: 1 display: {} '
          'snapshot_after_train: false snapshot_prefix: "run"\n')
DISPLAY, N_UNMEASURED, FEWEST, N_DRAWS = 5, 50, 10, 2000
N_IMAGES, N_INPUTS, N_HIDDEN, N_CLASSES = 48, 784, 128, 10
NET = """
layer {{ name: "d" type: "DummyData" top: "data" top: "label" dummy_data_param {{ shape {{ dim: {0} dim: {1} }}
  shape {{ dim: {0} }} data_filler {{ type: "gaussian" }} data_filler {{ type: "constant" value: 1 }} }} }}
layer {{ name: "a" type: "InnerProduct" bottom: "data" top: "a" inner_product_param {{ num_output: {2}
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "r" type: "ReLU" bottom: "a" top: "a" }}
layer {{ name: "b" type: "InnerProduct" bottom: "a" top: "b" inner_product_param {{ num_output: {3}
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "loss" }}
"""
N_ITERATIONS, ENDS_AFTER_SECONDS = {"shrink": 600, "replace": 4000, "torchrun": 600}, 120


def launch(on_loss: str, options: argparse.Namespace) -> list[str]:
    """The command of a training in the folder that it runs in."""
    words = [str(Path(sys.executable).parent / "mpirun"), *WITH[on_loss], "-np", str(options.ranks)]
    return [*words, sys.executable, "-m", "scaffe", "train", "-solver", "solver.prototxt", "-strategy",
            *options.strategy.split(), "-on_rank_loss", on_loss]


def write_lenet(folder: Path, n_iterations: int) -> None:
    """LeNet's solver for so many iterations, without tests and snapshots, and its images."""
    net = (EXAMPLE / "lenet_train_test.prototxt").read_text().replace("examples/fashion_mnist", str(folder))
    for stem, name in (("train", "train_lmdb"), ("t10k", "test_lmdb")):
        convert_mnist(str(EXAMPLE / f"{stem}-images-idx3-ubyte.gz"), str(EXAMPLE / f"{stem}-labels-idx1-ubyte.gz"),
                      str(folder / name), False)
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(SOLVER.format(n_iterations, DISPLAY))


def milliseconds(folder: Path, on_loss: str, options: argparse.Namespace) -> float:
    """The lower quartile of a training's iterations' times, by its display, without the first ones.

    Raises:
        RuntimeError: it has too few.
    """
    done = subprocess.run(launch(on_loss, options), cwd=folder, text=True, capture_output=True, check=False)
    found = re.findall(rf"Iteration (\d+) \(\S+ iter/s, (\S+)s/{DISPLAY} iters\)", done.stderr)
    times = [1000 * float(seconds) / DISPLAY for iteration, seconds in found if int(iteration) > N_UNMEASURED]
    if len(times) < FEWEST:
        raise RuntimeError(f"{len(times)} measured iterations: {done.stderr[-2000:]}")
    return lower_quartile(times)


def lower_quartile(values: Sequence[float]) -> float:
    """A quarter of the values lie below it."""
    return statistics.quantiles(values, n=4, method="inclusive")[0]


def compared(off: Sequence[float], on: Sequence[float]) -> tuple[float, float, float]:
    """By how much the lower quartile of `on` is above that of `off`, in percent; and the bounds of 90 % of what it is
    where runs are drawn again from these."""
    def percent(off: Sequence[float], on: Sequence[float]) -> float:
        return 100 * (lower_quartile(on) / lower_quartile(off) - 1)

    chance = random.Random(1)
    drawn = sorted(percent(chance.choices(off, k=len(off)), chance.choices(on, k=len(on))) for _ in range(N_DRAWS))
    return percent(off, on), drawn[N_DRAWS // 20], drawn[-N_DRAWS // 20]


def seconds_lost(command: list[str], folder: Path, chance: random.Random) -> float:
    """Of one training whose lines say ``Iteration N (``: the longest time without a new N, after a rank's death.

    Raises:
        RuntimeError: it makes no new iteration after that.
    """
    job = subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    furthest, dies_at, killed, before, longest, text = -1, chance.randrange(100, 200), 0.0, 0.0, 0.0, ""
    for line in job.stdout or ():
        text += line
        found = re.search(r"Iteration (\d+) \(", line)
        if found is None or int(found[1]) <= furthest:
            continue
        now, furthest = time.monotonic(), int(found[1])
        longest, before = max(longest, now - before if killed else 0.0), now
        if not killed and furthest >= dies_at:
            ranks = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            os.kill(int(chance.choice(ranks)), signal.SIGKILL)
            killed = time.monotonic()
    job.wait(ENDS_AFTER_SECONDS)
    if not killed or furthest <= dies_at:
        raise RuntimeError(f"no iteration after a rank's death: {text[-2000:]}")
    return longest


def cost(options: argparse.Namespace) -> None:
    """Where nobody is lost."""
    found: dict[str, list[float]] = {"stop": [], options.on_loss: []}
    with tempfile.TemporaryDirectory() as name:
        write_lenet(Path(name), options.iterations)
        for pair in range(options.pairs):
            for on_loss in sorted(found, reverse=bool(pair % 2)):
                found[on_loss].append(milliseconds(Path(name), on_loss, options))
            print(*(f"{on_loss} {values[-1]:.3f} ms" for on_loss, values in found.items()), flush=True)
    off, on = found.values()
    percent, least, most = compared(off, on)
    print(f"{options.on_loss} costs {percent:.2f} % ({least:.2f} to {most:.2f}) of {lower_quartile(off):.3f} ms "
          f"({options.strategy}, {options.ranks} ranks, lower quartiles of {options.pairs} runs each)")


def seconds(options: argparse.Namespace) -> None:
    """Where one is lost, beside PyTorch."""
    torchrun = [options.peer, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={options.ranks}",
                "--max-restarts=9", "--monitor-interval=0.1", str(ROOT / "benchmarks/peers/elastic_torch.py"),
                str(N_ITERATIONS["torchrun"])]
    commands = {"shrink": launch("shrink", options), "replace": launch("replace", options), "torchrun": torchrun}
    found: dict[str, list[float]] = {how: [] for how in commands}
    chance = random.Random(1)
    for _ in range(options.pairs):
        for how, command in commands.items():
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                (folder / "net.prototxt").write_text(NET.format(N_IMAGES, N_INPUTS, N_HIDDEN, N_CLASSES))
                (folder / "solver.prototxt").write_text(SOLVER.format(N_ITERATIONS[how], 1))
                found[how].append(seconds_lost(command, folder, chance))
        print(*(f"{how} {values[-1]:.2f} s" for how, values in found.items()), flush=True)
    note = f"{options.strategy}, {options.ranks} ranks, {options.pairs} deaths."
    versions = {"PyTorch": version(options.peer, "torch")}
    with Figures("rank-loss", ("how", "s lost", "longest"), note, options.keep, versions, str(options.ranks)) as table:
        for how, values in found.items():
            table.add(how, Sample(values), max(values))


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--strategy", default="sc-b")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--on-loss", default="shrink", choices=("shrink", "replace"))
    parser.add_argument("--peer", default="", help="a Python that has PyTorch: measure seconds lost, beside torchrun")
    add_flag(parser)
    options = parser.parse_args()
    (seconds if options.peer else cost)(options)


if __name__ == "__main__":
    main()
