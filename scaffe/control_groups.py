"""What Linux's control groups, of versions 1 and 2, allow this process: containers and SLURM limit by them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path

ROOT = Path("/")


def folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """The folders of this process's control group and of those above it, for one controller, innermost first.

    Args:
        controller: memory, cpu or cpuset.
        root: where /proc and /sys are found.
    """
    for line in lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / (controllers and controller)
            group = mount / path.lstrip("/")
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(mount))


def cpu_quota(root: Path = ROOT) -> int | None:
    """How many cores' time the processes of the group may use in all, rounded up; None without a limit.

    Args:
        root: where /proc and /sys are found.
    """
    texts = [text for folder in folders("cpu", root)
             for text in (f"{number(folder / 'cpu.cfs_quota_us')} {number(folder / 'cpu.cfs_period_us')}",
                          *lines(folder / "cpu.max"))]
    quotas = (re.fullmatch("([0-9]+) ([1-9][0-9]*)", text.strip()) for text in texts)
    return min((max(ceil(int(quota[1]) / int(quota[2])), 1) for quota in quotas if quota), default=None)


def n_cores(root: Path = ROOT) -> int | None:
    """How many cores the group may use, whatever this process is bound to; None where nobody says it.

    Args:
        root: where /proc and /sys are found.
    """
    for folder in folders("cpuset", root):
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            if text := "".join(lines(folder / name)).strip():
                return sum(_length(part) for part in text.split(","))
    return None


def _length(part: str) -> int:
    """How many numbers a part of a list has, as "3" or "0-3"."""
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1


def number(path: Path) -> int | None:
    """The number in a file; None where there is no file, or a word such as ``max``."""
    text = next(iter(lines(path)), "").strip()
    return int(text) if text.isdigit() else None


def lines(path: Path) -> list[str]:
    """The lines of a file, none where it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
