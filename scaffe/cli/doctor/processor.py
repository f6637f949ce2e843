"""Cores, and the library that computes on them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

from scaffe.cli.doctor.finding import FINE, SLOWER, Finding

WHEELS = "pip install onednn-cpu-gomp"
NO_WHEELS = "export SCAFFE_ONEDNN=/path/to/libdnnl.so.3  # built from oneDNN's source: its wheels are for x86_64"


def check() -> Iterator[Finding]:
    """How many cores this process may use, and with which instructions oneDNN computes."""
    from scaffe.layers.kernels.cpu.onednn.library import library, reason

    mine, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    if mine < there:
        yield Finding(FINE, "cores", f"{mine} of {there}: this process is bound to them")
    else:
        yield Finding(FINE, "cores", str(there))
    found = library()
    if found is None:
        yield Finding(SLOWER, "oneDNN", reason(), WHEELS if platform.machine() == "x86_64" else NO_WHEELS)
        return
    yield Finding(FINE, "oneDNN", f"{found.version} with {found.instruction_set()}, {found.path}")
