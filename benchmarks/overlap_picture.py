"""Draws docs/overlap.svg: what four ranks of an emulated cluster do in the same time under sc-b and under sc-obr.

    python benchmarks/overlap_picture.py [--batch 64] [--rate 1gbit] [--output docs/overlap.svg]

Both are timelines of ``scaffe train`` on CaffeNet, one rank a node (jobs/cluster.sh: root, iproute2), from the end of
the third iteration on; they last as long as two iterations of sc-b.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from math import ceil
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from launcher import ROOT, python  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402

from scaffe import svg  # noqa: E402
from scaffe.atomic_files import write_whole  # noqa: E402
from scaffe.errors import UserError  # noqa: E402
from scaffe.pictures.timeline import Window, elements, lay_out  # noqa: E402
from scaffe.report.trace import Trace, read_trace  # noqa: E402

N_NODES, N_WARM, N_SHOWN, N_ITERATIONS = 4, 3, 2, 8
TITLES = {"sc-b": "sc-b: ranks compute, then reduce",
          "sc-obr": "sc-obr: ranks reduce while backward computes"}
SOLVER = 'base_lr: 1e-6 momentum: 0.9 lr_policy: "fixed" display: 0'


def train(strategy: str, folder: Path, args: argparse.Namespace) -> Trace:
    """The timeline of a run, whose images are constant."""
    net = prototxt("caffenet", args.batch).replace('type: "Input"', 'type: "DummyData"')
    (folder / "net.prototxt").write_text(net.replace("input_param", "dummy_data_param"))
    (folder / "solver.prototxt").write_text(f'net: "{folder}/net.prototxt" max_iter: {N_ITERATIONS} {SOLVER}')
    timeline = folder / f"{strategy}.json"
    subprocess.run([f"{ROOT}/jobs/cluster.sh", str(N_NODES), args.rate, "--",
                    *python("-m", "scaffe", "train", "-solver", folder / "solver.prototxt", "-strategy", strategy,
                            "-timeline", timeline)], check=True)
    return read_trace(str(timeline))


def window(trace: Trace, length: float, title: str) -> Window:
    """What lies ``length`` milliseconds from the end of the warm-up, with the iterations that end there."""
    ends = trace.ends()
    start = ends[N_WARM - 1]
    within = [(f"iteration {i + 1}", end) for i, end in enumerate(ends[N_WARM:], N_WARM) if end <= start + length]
    return Window(start, start + length, title, tuple(within))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64, help="images a rank")
    parser.add_argument("--rate", default="1gbit", help="of each node's port, as tc takes it")
    parser.add_argument("--output", default=f"{ROOT}/docs/overlap.svg")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        traces = {strategy: train(strategy, Path(name), args) for strategy in TITLES}
    ends = traces["sc-b"].ends()
    length = ends[N_WARM + N_SHOWN - 1] - ends[N_WARM - 1]
    body: list[str] = []
    height = 0.0
    for strategy, title in TITLES.items():
        picture = lay_out(traces[strategy].events, window(traces[strategy], length, title))
        body.append(svg.element("g", "\n".join(elements(picture)), transform=f"translate(0 {height:.0f})"))
        width, height = picture.width, height + ceil(picture.height)
    write_whole(args.output, svg.document(width, height, body).encode(), UserError)
    for strategy, trace in traces.items():
        times = [b - a for a, b in zip(trace.ends()[N_WARM - 1:], trace.ends()[N_WARM:], strict=False)]
        print(f"{strategy}: {sorted(times)[len(times) // 2]:,.0f} ms an iteration")


if __name__ == "__main__":
    main()
