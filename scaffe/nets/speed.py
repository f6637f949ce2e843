"""How fast layers compute their products, beside what the machine reaches on a convolution that suits it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels.backend import Backend
from scaffe.layers.kernels.specs import ConvSpec
from scaffe.nets.net import Net
from scaffe.nets.summary import products

N_IMAGES = {"host": 4, "device": 32}
WIDTH, SIDE = 256, 28  # channels, and pixels of an image's side
N_TRIES = 5


def measured_peak(kernels: Backend, dtype: np.dtype) -> float:
    """10⁹ operations a second, by the fastest of some tries, of a 3x3 convolution of many channels of that type, whose
    sums are computed as they are defined."""
    shape = (N_IMAGES[kernels.PLACE], WIDTH, SIDE, SIDE)
    spec = ConvSpec(shape, WIDTH, (3, 3), (1, 1), (1, 1), (1, 1), bias=False, dtype=dtype, direct=True)
    plan, on_device = kernels.convolution(spec), kernels.PLACE == "device"
    x, y = (kernels.to_device(np.ones(prod(shape), dtype)) for _ in range(2))
    w = kernels.to_device(np.ones(spec.weight_shape, dtype if on_device or dtype.kind == "f" else np.float32))
    seconds = []
    for _ in range(N_TRIES):
        kernels.synchronize()
        started = time.perf_counter()
        plan.forward(x, w, None, y)
        kernels.synchronize()
        seconds.append(time.perf_counter() - started)
    return 2 * prod(shape) * prod(spec.weight_shape[1:]) / min(seconds) / 1e9


def speed_lines(net: Net, forward: Mapping[int, float], backward: Mapping[int, float], peak: float) -> list[str]:
    """A line for each layer that computes matrix products: GFLOP/s and share of the peak, two operations a
    multiply-add of the definition.

    Args:
        net: the net.
        forward, backward: seconds of one pass of each layer, by its index.
        peak: GFLOP/s.
    """
    counts, lines = products(net), []
    for index, node in enumerate(net.nodes):
        ways = [_speed(way, 2 * n / 1e9 / seconds[index], peak) for way, n, seconds in zip(
            ("forward", "backward"), counts.get(node.name, (0, 0)), (forward, backward), strict=True)
            if n and seconds.get(index)]
        if ways:
            lines.append("\t".join([f"{node.name:>10}", *ways]))
    return lines


def _speed(way: str, gflops: Any, peak: float) -> str:
    return f"{way}: {gflops:.1f} GFLOP/s, {gflops / peak:.0%} of the peak."
