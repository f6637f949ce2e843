"""Host memory: how much of it is left, and private buffers on huge pages."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.control_groups import ROOT, folders, lines, number

UNLIMITED = 1 << 60
"""cgroup v1 writes a number above this for no limit."""


def shortage(n_bytes: int, what: str, root: Path = ROOT) -> str:
    """Checks whether there is enough memory.

    Args:
        n_bytes: needed on this machine.
        what: the need in words.
        root: where /proc and /sys are found.

    Returns:
        A line with what is needed and what is left; empty where there is enough, or that cannot be found out.
    """
    limits = dict(_limits(root))
    if not limits:
        return ""
    which = min(limits, key=limits.__getitem__)
    if n_bytes <= limits[which]:
        return ""
    return f"no memory for {what}: {which} leaves {max(limits[which], 0)} bytes on this node"


def _limits(root: Path) -> Iterator[tuple[str, int]]:
    """What each limit still allows, in bytes."""
    for line in lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield "MemAvailable", int(line.split()[1]) * 1024
    for folder in folders("memory", root):
        yield from _group(folder, "memory.max", "memory.current", "inactive_file")
        yield from _group(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _group(folder: Path, limit: str, usage: str, cache: str) -> Iterator[tuple[str, int]]:
    """What a control group still allows; page cache that is not in use is given back when memory is short."""
    most, used = number(folder / limit), number(folder / usage)
    if most is not None and most < UNLIMITED and used is not None:
        reclaimable = [int(line.split()[1]) for line in lines(folder / "memory.stat") if line.startswith(f"{cache} ")]
        yield f"{limit} of the control group {folder}", most - used + sum(reclaimable)


HUGE_PAGE_BYTES = 2 << 20


def private_empty(n_elems: int, dtype: Any) -> np.ndarray:
    """A zeroed 1-D array of `n_elems` in this process's own memory, on transparent huge pages from 2 MiB up."""
    dtype = np.dtype(dtype)
    n_bytes = n_elems * dtype.itemsize
    if n_bytes < HUGE_PAGE_BYTES:
        return np.zeros(n_elems, dtype)
    pages = mmap.mmap(-1, n_bytes + HUGE_PAGE_BYTES)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    skip = -whole.ctypes.data % HUGE_PAGE_BYTES
    return whole[skip : skip + n_bytes].view(dtype)
