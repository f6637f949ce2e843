"""Speeds of slow memories, each measured once and kept in the cache folder: later runs are planned without a trial."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.private_files import kept_folder, read, write


def kept_speed(name: str, key: str, measure: Callable[[], Bandwidth]) -> Bandwidth:
    """Bytes a second each way: as a file in the cache folder has them, else as measured now.

    Args:
        name: of the file.
        key: what the speed is of.
        measure: makes a trial.
    """
    folder = kept_folder()
    known = _known(folder / name) if folder else {}
    if key not in known:
        measured = measure()
        known[key] = [measured.out, measured.back]
        with suppress(OSError):  # the next run measures again
            if folder:
                write(folder / name, json.dumps(known).encode())
    out, back = known[key]
    return Bandwidth(out, back)


def _known(place: Path) -> dict[str, list[float]]:
    """What the file says; nothing if it is not there, or says anything else."""
    with suppress(ValueError, TypeError, AttributeError):
        return {key: [float(out), float(back)] for key, (out, back) in json.loads(read(place) or b"{}").items()
                if min(float(out), float(back)) > 0}
    return {}
