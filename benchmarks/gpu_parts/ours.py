"""Our training step on a GPU: one line of JSON with images per second, seconds a step and memory.

    python benchmarks/gpu_parts/ours.py NET --batch N --precision fp32|tf32|bf16|fp16 [--seconds S] [--save FILE.npz]
                                        [--inference]

Batch and weights lie on the GPU from the start. ``--save`` writes them for the peer, without a GPU, and measures
nothing. ``--inference``: forward of the net in its phase TEST, one batch after another. The loss is the net's on that
batch with the initial weights (without dropout where the net has some), to hold against the peer's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from nets.architectures import ARCHITECTURES  # noqa: E402
from nets.prototxt import prototxt  # noqa: E402

from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.layers.base.context import Context  # noqa: E402
from scaffe.layers.base.layer import TEST, TRAIN  # noqa: E402
from scaffe.layers.base.random import Stream  # noqa: E402
from scaffe.layers.kernels import device  # noqa: E402
from scaffe.memory.problem.activations import reuse_activations  # noqa: E402
from scaffe.nets import graph  # noqa: E402
from scaffe.nets.build import build_net  # noqa: E402
from scaffe.nets.cuda_graphs import Recorded  # noqa: E402
from scaffe.nets.devices import Compute, load_kernels  # noqa: E402
from scaffe.nets.net import Net  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.proto.text import parse_text  # noqa: E402
from scaffe.training.loss_scale import LossScale, needs_scale  # noqa: E402
from scaffe.training.solver import Method, Solver  # noqa: E402

SOLVER = 'base_lr: 1e-4 momentum: 0.9 weight_decay: 5e-4 lr_policy: "fixed"'
ROUNDS = 5
WARM_STEPS = 5


def compute_for(precision: str, node_rank: int = 0) -> Compute:
    """What flags would say: tf32 is float32 with products in TF32."""
    return Compute("all", precision=precision.replace("tf32", "fp32"), tf32=precision == "tf32", node_rank=node_rank)


def batch_for(name: str, n_images: int, rank: int = 0) -> dict[str, np.ndarray]:
    """Images and labels, of a rank's own."""
    net, rng = ARCHITECTURES[name](), np.random.default_rng(1 + rank)
    return {"data": rng.standard_normal((n_images, *net.image), np.float32),
            "label": rng.integers(0, net.n_classes, n_images)}


def build(name: str, batch: dict[str, np.ndarray], kernels: Any, dtype: np.dtype, phase: int = TRAIN,
          trained: Net | None = None) -> Net:
    """The net on the device, its inputs filled."""
    message = parse_text(prototxt(name, len(batch["label"])), caffe_pb2.NetParameter)
    net = build_net(graph.prepare(message, phase), Context(phase, kernels, dtype, Stream(1701)), trained)
    reuse_activations(net, backward=phase == TRAIN)
    for top, values in batch.items():
        net.blobs[top].data = kernels.to_device(values, net.blobs[top].dtype)  # bfloat16 holds no label beyond 256
    return net


def make_solver(net: Net, communicator: Communicator, method: Method | None = None) -> Solver:
    """A solver for that net."""
    solver = Solver(parse_text(SOLVER, caffe_pb2.SolverParameter), net, [], communicator, method)
    if needs_scale(net.context.dtype):
        solver.observers.append(LossScale())
        solver.observers[0].begin(solver)
    return solver


def first_loss(name: str, batch: dict[str, np.ndarray], net: Net) -> float:
    """The loss before training, or of testing."""
    draws = any(op.kind == "dropout" for op in ARCHITECTURES[name]().ops)
    context = net.context
    return float((build(name, batch, context.kernels, context.dtype, TEST, net) if draws else net).forward())


def seconds_a_step(solver: Solver, seconds: float) -> list[float]:
    """Of ROUNDS rounds that take so long together; each ends when the device has computed it."""
    solver.step(WARM_STEPS)
    started = time.perf_counter()
    solver.step(2)
    n_steps = max(round(seconds / ROUNDS * 2 / (time.perf_counter() - started)), 1)
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        solver.step(n_steps)  # ends with a look at the losses
        solver.net.context.kernels.synchronize()
        found.append((time.perf_counter() - started) / n_steps)
    return found


def seconds_a_pass(net: Net, seconds: float) -> list[float]:
    """Of ROUNDS rounds of forward passes that take so long together, recorded as CUDA graphs."""
    passes, synchronize = Recorded(net, (), backward=False), net.context.kernels.synchronize

    def run(n_passes: int) -> float:
        synchronize()
        started = time.perf_counter()
        for _ in range(n_passes):
            passes.forward()
        synchronize()
        return (time.perf_counter() - started) / n_passes
    run(WARM_STEPS)
    n_passes = max(round(seconds / ROUNDS / run(2)), 1)
    return [run(n_passes) for _ in range(ROUNDS)]


def save(path: Path, net: Net, batch: dict[str, np.ndarray]) -> None:
    """Batch and weights, for the peer."""
    arrays: dict[str, Any] = dict(batch)
    for node in net.nodes:
        for blob, part in zip(node.layer.blobs, ("weight", "bias"), strict=False):
            arrays[f"{node.name}.{part}"] = net.context.kernels.to_host(blob.data)
    np.savez(path, **arrays)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=tuple(ARCHITECTURES))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", default="tf32", choices=("fp32", "tf32", "bf16", "fp16"))
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--inference", action="store_true")
    options = parser.parse_args()
    batch, started = batch_for(options.net, options.batch), time.perf_counter()
    if options.save:
        first = {top: values[:1] for top, values in batch.items()}  # weights do not depend on the batch
        net = build(options.net, first, load_kernels(1, Compute()), np.dtype(np.float32))
        save(options.save, net, batch)
        return
    compute = compute_for(options.precision)
    net = build(options.net, batch, load_kernels(1, compute), compute.dtype, TEST if options.inference else TRAIN)
    loss = first_loss(options.net, batch, net)
    if options.inference:
        found = seconds_a_pass(net, options.seconds)
    else:
        found = seconds_a_step(make_solver(net, Communicator.single()), options.seconds)
    pool = device.load().get_default_memory_pool()
    pool.free_all_blocks()  # what cuDNN's plans were timed on
    print(json.dumps({"images_per_second": options.batch / median(found), "milliseconds": median(found) * 1e3,
                      "spread": max(found) / min(found), "loss": loss, "memory_bytes": pool.total_bytes(),
                      "seconds_in_all": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
