"""What -on_rank_loss costs where nobody is lost: LeNet's images per second with it and without, in turn.

    python benchmarks/rank_loss.py [--ranks 2] [--strategy sc-b] [--pairs 7] [--iterations 500]

Images are the example's (databases as ``make train`` leaves them). Without it mpirun has no fault tolerance either.
Prints each pair, and the ratio of the medians. Variables of mpi.env are taken from the environment.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "fashion_mnist"
WITH = {"stop": [], "shrink": ["--with-ft", "ulfm"], "replace": ["--with-ft", "ulfm"]}


def write_solver(folder: Path, n_iterations: int) -> None:
    """LeNet's solver for so many iterations, without tests and snapshots."""
    net = (EXAMPLE / "lenet_train_test.prototxt").read_text().replace("examples/fashion_mnist", str(EXAMPLE))
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(
        f'net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: {n_iterations} random_seed: 1\n'
        'snapshot_after_train: false snapshot_prefix: "run"\n')


def images_per_second(folder: Path, on_loss: str, options: argparse.Namespace) -> float:
    """Of one training, by its summary.

    Raises:
        RuntimeError: it has none.
    """
    launcher = [str(Path(sys.executable).parent / "mpirun"), *WITH[on_loss], "-np", str(options.ranks)]
    done = subprocess.run([*launcher, sys.executable, "-m", "scaffe", "train", "-solver", "solver.prototxt",
                           "-strategy", options.strategy, "-on_rank_loss", on_loss], cwd=folder, text=True,
                          capture_output=True, check=False)
    if (found := re.search(r"rank\(s\), (\d+) images/s", done.stderr)) is None:
        raise RuntimeError(f"no summary: {done.stderr[-2000:]}")
    return float(found[1])


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--strategy", default="sc-b")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--on-loss", default="shrink", choices=("shrink", "replace"))
    options = parser.parse_args()
    found: dict[str, list[float]] = {"stop": [], options.on_loss: []}
    with tempfile.TemporaryDirectory() as name:
        write_solver(Path(name), options.iterations)
        for pair in range(options.pairs):
            for on_loss in sorted(found, reverse=bool(pair % 2)):
                found[on_loss].append(images_per_second(Path(name), on_loss, options))
            print(*(f"{on_loss} {values[-1]:.0f} images/s" for on_loss, values in found.items()), flush=True)
    off, on = (statistics.median(values) for values in found.values())
    print(f"{options.on_loss} costs {100 * (1 - on / off):.2f} % of {off:.0f} images/s "
          f"({options.strategy}, {options.ranks} ranks, medians of {options.pairs})")


if __name__ == "__main__":
    main()
