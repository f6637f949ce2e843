"""Float32 beside bfloat16 on the CPU: the time of forward and backward on the same weights and batch, taking turns.

    python benchmarks/precision.py [--rounds N] NET BATCH

Prints both losses first, then the median and the shortest step of each, and the ratios.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from nets.architectures import ARCHITECTURES  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402

from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TRAIN  # noqa: E402
from scaffe.layers.base.random import Stream  # noqa: E402
from scaffe.nets import graph  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.devices import Compute, load_kernels  # noqa: E402
from scaffe.nets.net import Net  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402


def build(name: str, batch: int, precision: str) -> Net:
    """The net, with seeded weights and one seeded batch."""
    compute = Compute(precision=precision)
    message = graph.prepare(parse_text(prototxt(name, batch), caffe_pb2.NetParameter), TRAIN)
    net = build_net(message, Context(TRAIN, load_kernels(1, compute), compute.dtype, Stream(1701)))
    rng = np.random.default_rng(1)
    net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape, np.float32)
    net.blobs["label"].data[...] = rng.integers(0, 10, net.blobs["label"].shape)
    return net


def seconds(net: Net) -> float:
    """Of one forward and backward."""
    started = time.perf_counter()
    net.clear_param_diffs()
    net.forward()
    net.backward()
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("net", choices=sorted(ARCHITECTURES))
    parser.add_argument("batch", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    nets = {precision: build(args.net, args.batch, precision) for precision in ("fp32", "bf16")}
    for precision, net in nets.items():
        print(f"{precision}: loss {net.forward():.6g}")
        seconds(net)
    steps: dict[str, list[float]] = {precision: [] for precision in nets}
    for _ in range(args.rounds):
        for precision, net in nets.items():
            steps[precision].append(seconds(net))
    for what, measure in (("median", median), ("shortest", min)):
        wide, half = measure(steps["fp32"]), measure(steps["bf16"])
        print(f"{what}: fp32 {wide * 1e3:.1f} ms, bf16 {half * 1e3:.1f} ms, {wide / half:.2f} times as fast")


if __name__ == "__main__":
    main()
