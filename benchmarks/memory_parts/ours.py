"""One net's training steps at one limit after another, in one process: a line of JSON for each limit.

    python benchmarks/memory_parts/ours.py NET --batch N [--precision fp32|tf32|bf16] [--limits none,50%] [--gpu N]
                                           [--seconds S] [--narrow N]

A limit that is refused is a row with the line that refuses it. Steps are timed once the plan was made again with
measured times, and passes were recorded again.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from nets.architectures import ARCHITECTURES  # noqa: E402

from memory_parts.nets import SOLVER, net_text  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.errors import ExpectedError  # noqa: E402
from scaffe.layers.kernels import device  # noqa: E402
from scaffe.memory.plan.schedule import predict  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.assembly import build_solver  # noqa: E402
from scaffe.training.limited_memory import LimitedMemory  # noqa: E402
from scaffe.training.solver import Solver  # noqa: E402

WARM_STEPS = 7  # four until the plan is made again, and then three, of which the first records
ROUNDS = 3


def solver_of(options: argparse.Namespace, limit: str, folder: str) -> Solver:
    """A solver, as flags of ``train`` would have it built. Raises UserError if it needs more than the limit."""
    param = parse_text(SOLVER, caffe_pb2.SolverParameter)
    on_gpu = bool(options.gpu)
    param.net_param.CopyFrom(parse_text(net_text(options.net, options.batch, options.narrow, on_gpu),
                                        caffe_pb2.NetParameter))
    flags = argparse.Namespace(
        strategy="auto", reduce="auto", allow_nan=True, threads=options.threads, readers=1, stage="", level=0,
        scal="strong", spill="." if on_gpu else folder, placement="auto", gpu=options.gpu,
        precision=options.precision.replace("tf32", "fp32"), tf32="on" if options.precision == "tf32" else "off",
        memory="" if limit == "none" else limit)
    return build_solver(Communicator.single(), param, flags)


def measured(solver: Solver, options: argparse.Namespace) -> dict[str, Any]:
    """Images a second, and what its plan predicts."""
    started = time.perf_counter()
    solver.strategy.begin()
    for observer in solver.observers:
        observer.begin(solver)
    solver.step(WARM_STEPS)
    _, warm_up = timed(solver, 1), time.perf_counter() - started
    n_steps = max(round(options.seconds / ROUNDS / timed(solver, 1)), 1)
    seconds = [timed(solver, n_steps) for _ in range(ROUNDS)]
    row = {"images_per_second": options.batch / median(seconds), "milliseconds": median(seconds) * 1e3,
           "spread": max(seconds) / min(seconds), "warm_up_seconds": warm_up}
    return row | next((predicted(each) for each in solver.observers if isinstance(each, LimitedMemory)), {})


def timed(solver: Solver, n_steps: int) -> float:
    """Seconds a step."""
    started = time.perf_counter()
    solver.step(n_steps)
    solver.net.context.kernels.synchronize()
    return (time.perf_counter() - started) / n_steps


def predicted(limited: LimitedMemory) -> dict[str, Any]:
    """Of the plan that it follows by now."""
    tier = limited.tier
    found = predict(tier.iteration, tier.plan, tier._bandwidth)
    return {"predicted_slowdown": found.slowdown, "predicted_milliseconds": found.seconds * 1e3,
            "offloaded_bytes": found.offloaded, "limit_bytes": tier.limit.n_bytes, "least_bytes": tier.least,
            "unmovable_bytes": tier.limit.unmovable}


def row_of(options: argparse.Namespace, limit: str) -> dict[str, Any]:
    """One limit's, whatever becomes of it."""
    started, free = time.perf_counter(), free_bytes(options)
    with tempfile.TemporaryDirectory() as folder:
        try:
            solver = solver_of(options, limit, folder)
        except ExpectedError as error:
            return {"refused": str(error), "build_seconds": time.perf_counter() - started}
        except Exception as error:  # CUDA's, such as a device without room
            return {"error": f"{type(error).__name__}: {device.first_line(error)}"}
        built = time.perf_counter() - started
        try:
            row = measured(solver, options)
        except Exception as error:  # as above
            return {"error": f"{type(error).__name__}: {device.first_line(error)}"}
        finally:
            solver.close()
        return row | {"build_seconds": built, "taken_bytes": free - free_bytes(options)}


def free_bytes(options: argparse.Namespace) -> int:
    """Of the device, once what nobody uses any more is given back; 0 on the host."""
    if not options.gpu:
        return 0
    gc.collect()
    device.load().get_default_memory_pool().free_all_blocks()
    return int(device.load().cuda.runtime.memGetInfo()[0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=tuple(ARCHITECTURES))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", default="fp32", choices=("fp32", "tf32", "bf16"))
    parser.add_argument("--limits", default="none,50%,38%")
    parser.add_argument("--gpu", default="", help="its number; none: on the host")
    parser.add_argument("--seconds", type=float, default=1.5, help="of measuring a limit")
    parser.add_argument("--narrow", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for limit in options.limits.split(","):
        print(json.dumps({"limit": limit, **row_of(options, limit)}), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
