"""Measures how much slower bfloat16 is than float32 on a processor without instructions for it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu import convolution
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.specs import ConvSpec

SAMPLE = ConvSpec((4, 64, 28, 28), 64, (3, 3), (1, 1), (1, 1), (1, 1), 1, False)
N_TRIES = 3


def slowness(dtype: np.dtype) -> float | None:
    """Times of a convolution in ``dtype`` over those in float32, each the shortest of a few runs; None, without a
    measurement, if the processor has instructions for bfloat16."""
    if has_instructions():
        return None
    return _seconds(replace(SAMPLE, dtype=dtype)) / _seconds(SAMPLE)


def has_instructions() -> bool:
    """Whether the processor has instructions for products of bfloat16 numbers."""
    lib = library()
    return lib is not None and lib.multiplies_bfloat16()


def _seconds(spec: ConvSpec) -> float:
    plan, taken = convolution(spec), []
    x: Any = np.ones(spec.in_shape, spec.dtype)
    y: Any = np.ones(spec.out_shape, spec.dtype)
    w = np.ones(spec.weight_shape, np.float32)
    for _ in range(N_TRIES):
        started = time.perf_counter()
        plan.forward(x, w, None, y)
        taken.append(time.perf_counter() - started)
    return min(taken)
