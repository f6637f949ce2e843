"""The graphs that the benchmarks' nets ask of cuDNN: every convolution and batch norm once, in every precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.nets.architectures import ARCHITECTURES, Architecture, Op
from scaffe.layers.kernels.cuda.cudnn import batch_norm as norms
from scaffe.layers.kernels.cuda.cudnn import convolution as convolutions
from scaffe.layers.kernels.specs import ConvSpec

NETS, BATCH = ("caffenet", "googlenet", "resnet50"), 256
PRECISIONS = (("float32", np.float32, False), ("TF32", np.float32, True), ("bf16", ml_dtypes.bfloat16, False),
              ("fp16", np.float16, False))
PASSES = (convolutions.FORWARD, convolutions.BY_DATA, convolutions.BY_WEIGHTS)
EPS = 1e-5


def sizes(net: Architecture) -> dict[str, int]:
    """Height, which is the width too, of every blob with images."""
    found = {"data": net.image[1]}
    for op in net.ops:
        size = found.get(op.bottoms[0])
        if size is None or op.kind in ("fc", "loss"):
            continue
        found[op.top] = after(op, size) if op.kind in ("conv", "max", "ave") else size
    return found


def after(op: Op, size: int) -> int:
    """What a convolution or a pooling, which rounds up, makes of a size."""
    kernel, stride, pad = (op.options[name] for name in ("kernel", "stride", "pad"))
    if op.kind == "conv":
        return (size + 2 * pad - kernel) // stride + 1
    n = -(-(size + 2 * pad - kernel) // stride) + 1
    return n - (pad > 0 and (n - 1) * stride >= size + pad)


def conv_spec(op: Op, net: Architecture, size: int, dtype: Any) -> ConvSpec:
    """A convolution's geometry at BATCH."""
    kernel, stride, pad = ((op.options[name],) * 2 for name in ("kernel", "stride", "pad"))
    return ConvSpec((BATCH, op.options["n_in"], size, size), net.channels[op.top], kernel, stride, pad, (1, 1),
                    op.options["group"], False, np.dtype(dtype))


def graphs_of(name: str) -> Iterator[tuple[str, Any]]:
    """Each of a net's graphs, with its name; those of equal geometry are equal."""
    net = ARCHITECTURES[name]()
    size, followed = sizes(net), {op.bottoms[0] for op in net.ops if op.kind == "relu"}
    for label, dtype, tf32 in PRECISIONS:
        for op in net.ops:
            if op.kind == "conv":
                spec = conv_spec(op, net, size[op.bottoms[0]], dtype)
                for kind in PASSES:
                    yield f"{name} {op.name} {label} {kind}", convolutions.ConvKey(kind, spec, tf32)
                if op.options["bias"]:
                    slope = 0.0 if op.top in followed else None
                    yield f"{name} {op.name} {label} fused", convolutions.ConvKey(PASSES[0], spec, tf32, True, slope)
            elif op.kind == "bn" and not tf32:
                n = size[op.bottoms[0]]
                for kind in (norms.FORWARD, norms.BACKWARD):
                    yield f"{name} {op.name} {label} {kind}", norms.NormKey(
                        kind, (BATCH, net.channels[op.top], n, n), np.dtype(dtype), EPS, op.top in followed)


def with_micro_batches(name: str) -> dict[str, convolutions.ConvKey]:
    """A net's convolutions in TF32, for the batch and for micro-batches, by layer, pass and images."""
    return {f"{layer} {kind} {each.spec.in_shape[0]}": each for label, key in graphs_of(name) if key.tf32
            for _, layer, _, kind in [label.split()] for each in (key, *convolutions.halves(key))}


def every_graph() -> dict[Any, str]:
    """The graphs without those that occur twice: each with the name of the first."""
    found: dict[Any, str] = {}
    for name in NETS:
        for label, key in graphs_of(name):
            found.setdefault(key, label)
    return found
