"""Host memory: how much of it is left, and private buffers on huge pages."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path("/")
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
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield "MemAvailable", int(line.split()[1]) * 1024
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _group(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            yield from _group(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file")


def _group(mount: Path, path: str, limit: str, usage: str, cache: str) -> Iterator[tuple[str, int]]:
    """A control group and those above it; page cache that is not in use is given back when memory is short."""
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            return
        most = _number(folder / limit)
        if most is None or most >= UNLIMITED or (used := _number(folder / usage)) is None:
            continue
        reclaimable = [int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith(f"{cache} ")]
        yield f"{limit} of the control group {folder}", most - used + sum(reclaimable)


def _number(path: Path) -> int | None:
    """What a file of one number says; None where there is no file, or a word such as ``max``."""
    text = next(iter(_lines(path)), "").strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


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
