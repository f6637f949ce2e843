"""Which layers of training steps do not get faster with a second thread, and what share of a step they take.

    python benchmarks/threads.py [--threads N] [--rounds N] [--share PERCENT] [NET ...]

`scaffe time` runs in turns with one thread and with N; times are medians of the rounds. A layer whose pass takes more
than SHARE of a step with N threads, and is less than 1.3 times as fast as with one, has a line.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

import launcher  # noqa: E402, F401 - children find scaffe
from nets.architectures import BATCHES  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402

NETS = ("lenet", "cifar10_quick", "caffenet", "googlenet", "resnet50", "vgg16", "mobilenet")
ITERATIONS = {"lenet": 300, "cifar10_quick": 100, "vgg16": 3}
OTHERS = 10  # iterations of larger nets
GAIN = 1.3
LINE = re.compile(r"(\S+)\s+(forward|backward): ([\d.]+) ms")
Times = dict[tuple[str, str], float]


def times(model: Path, n_threads: int, n_iterations: int) -> Times:
    """Milliseconds by layer and direction."""
    done = subprocess.run([sys.executable, "-m", "scaffe", "time", "-model", str(model), "-threads", str(n_threads),
                           "-iterations", str(n_iterations)], capture_output=True, text=True, check=True)
    return {(found[1], found[2]): float(found[3]) for found in map(LINE.search, done.stderr.splitlines()) if found}


def compare(name: str, n_threads: int, n_rounds: int, least_share: float) -> list[str]:
    """Lines about one net."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "net.prototxt"
        model.write_text(prototxt(name, BATCHES[name]))
        found: dict[int, list[Times]] = defaultdict(list)
        for _ in range(n_rounds):
            for n in (1, n_threads):
                found[n].append(times(model, n, ITERATIONS.get(name, OTHERS)))
    one, several = ({key: median(each[key] for each in found[n]) for key in found[n][0]} for n in (1, n_threads))
    step, gain = sum(several.values()), sum(one.values()) / sum(several.values())
    lines = [f"{name}: {gain * step:.2f} ms a step, {step:.2f} with {n_threads} threads ({gain:.2f} times as fast)"]
    for key in sorted(several, key=several.__getitem__, reverse=True):
        if several[key] > least_share * step and one[key] < GAIN * several[key]:
            lines.append(f"    {key[0]:24} {key[1]:8} {one[key]:8.3f} ms, {several[key]:8.3f}: "
                         f"{one[key] / several[key]:.2f} times as fast, {several[key] / step:.1%} of the step")
    return lines


def main() -> None:
    """Look at the nets that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", default=NETS, metavar="NET", help=", ".join(sorted(BATCHES)))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=2, help="percent of a step")
    options = parser.parse_args()
    for net in options.nets:
        if net not in BATCHES:
            parser.error(f"unknown net {net!r}; known: {', '.join(sorted(BATCHES))}")
    for name in options.nets:
        print("\n".join(compare(name, options.threads, options.rounds, options.share / 100)), flush=True)


if __name__ == "__main__":
    main()
