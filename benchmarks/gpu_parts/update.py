"""The fused update kernels against the card's own copies: lines of JSON with their shares of that bandwidth.

    python benchmarks/gpu_parts/update.py [--elems N]

An update reads weights, gradients and histories and writes weights and histories, once each; a copy of n bytes moves
2 n. The card's bandwidth by clock and width stands beside both.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scaffe.layers.kernels import (
    cuda,  # noqa: E402
    device,  # noqa: E402
)
from scaffe.layers.kernels.specs import Segment  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.training.update_rules import Hyper, update_rules  # noqa: E402

MOMENTUM = {"momentum": 0.9}
RULES = {"SGD": MOMENTUM, "Nesterov": MOMENTUM, "AdaGrad": {}, "RMSProp": {"rms_decay": 0.9},
         "AdaDelta": {**MOMENTUM, "delta": 1e-6}, "Adam": {**MOMENTUM, "momentum2": 0.999}}
N_PARAMETERS = 60
REPEATS, WARM = 10, 2
CALLS = 10  # between two events: Python takes as long to queue one as the device to run a short one


def milliseconds(queue_work: Any) -> float:
    """A call's, of the device, from event to event; the middle of several."""
    cupy, found = device.load(), []
    for _ in range(WARM + REPEATS):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        queue_work()
        start.record()
        for _ in range(CALLS):
            queue_work()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(start, end) / CALLS)
    return median(found[WARM:])


def segments(n_elems: int) -> list[Segment]:
    """A net's: as many weights as biases, with Caffe's usual multipliers, of uneven lengths."""
    edges = np.unique(np.linspace(0, 1, N_PARAMETERS + 1) ** 3 * n_elems // 16 * 16).astype(int)
    return [Segment(int(a), int(b), 1.0 + i % 2, 1.0 - i % 2) for i, (a, b) in enumerate(pairwise(edges))]


def measure(name: str, n_elems: int) -> dict[str, Any]:
    """One rule's row."""
    rule = update_rules.get(name)(caffe_pb2.SolverParameter(type=name, **RULES[name]))
    w, g = (cuda.zeros(n_elems, np.float32) for _ in range(2))
    histories = [cuda.zeros(n_elems, np.float32) for _ in range(rule.n_histories)]
    plan = cuda.update_plan(rule, segments(n_elems))
    took = milliseconds(lambda: plan.run(w, g, histories, Hyper(1e-3, 5e-4, False, 1.0, 1, False)))
    n_bytes = 4 * n_elems * (3 + 2 * rule.n_histories)
    return {"rule": name, "milliseconds": took, "bytes_per_second": n_bytes / (took * 1e-3)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elems", type=int, default=1 << 26)
    options = parser.parse_args()
    cupy = device.load()
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    nominal = 2 * properties["memoryClockRate"] * 1e3 * properties["memoryBusWidth"] / 8
    source = cuda.zeros(4 * options.elems, np.uint8)
    target, stream = cupy.empty_like(source), cupy.cuda.get_current_stream()
    took = milliseconds(lambda: target.data.copy_from_device_async(source.data, source.nbytes, stream))
    copied = 2 * source.nbytes / (took * 1e-3)
    print(json.dumps({"rule": "copy", "milliseconds": took, "bytes_per_second": copied,
                      "share_of_nominal": copied / nominal}))
    for name in RULES:
        row = measure(name, options.elems)
        rate = row["bytes_per_second"]
        print(json.dumps(row | {"share_of_copy": rate / copied, "share_of_nominal": rate / nominal}), flush=True)


if __name__ == "__main__":
    main()
