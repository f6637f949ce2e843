"""NVTX ranges, under which profilers such as Nsight Systems show a device's work, by CuPy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from scaffe.layers.kernels import device

INJECTED = "NVTX_INJECTION64_PATH"
"""Where a profiler that has started this process says which library takes ranges (NVTX 3)."""


def profiler_is_attached() -> bool:
    """Whether a profiler that takes ranges has started this process."""
    return bool(os.environ.get(INJECTED))


@contextmanager
def named(name: str) -> Iterator[None]:
    """What this thread queues in a with-block is shown under a name."""
    nvtx = device.load().cuda.nvtx
    nvtx.RangePush(name)
    try:
        yield
    finally:
        nvtx.RangePop()
