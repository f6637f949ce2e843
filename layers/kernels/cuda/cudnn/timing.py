"""Which of several plans for the same result is taken, from their times on the device and what they work in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.cudnn.graphs import Key, held

SLOWER = 1.04  # than the fastest, for less workspace: no more than times vary between runs
N_TIMED = 3


def choose(seconds: Sequence[float], workspaces: Sequence[int]) -> int:
    """The index of the plan with the least workspace among those that take at most SLOWER times as long as the fastest;
    of equal ones the fastest.

    Args:
        seconds: of each plan; at least one.
        workspaces: of each plan, in bytes.
    """
    limit = min(seconds) * SLOWER
    return min((index for index, taken in enumerate(seconds) if taken <= limit),
               key=lambda index: (workspaces[index], seconds[index]))


def operands(key: Key, n_workspace_bytes: int) -> tuple[dict[int, Any], Any]:
    """Arrays of zeros for a graph's tensors, by number, and a workspace: to time it with."""
    cupy = device.load()
    arrays = {number: cupy.zeros(*held(*tensor)) for number, tensor in key.tensors.items()}
    return arrays, cupy.empty(max(n_workspace_bytes, 1), np.uint8)


def seconds_of(work: Callable[[], Any]) -> float:
    """The shortest of a few runs on the device."""
    cuda = device.load().cuda
    work()
    times: list[float] = []
    for _ in range(N_TIMED):
        start, end = cuda.Event(), cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(cuda.get_elapsed_time(start, end) / 1e3)
    return min(times)
