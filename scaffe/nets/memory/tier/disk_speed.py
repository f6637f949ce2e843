"""How fast a disk is, measured once and kept in the cache folder: moves of a run then are planned without a trial."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.spill_file import SpillFile
from scaffe.private_files import kept_folder, read, write

NAME = "disks.json"


def disk_speed(file: SpillFile) -> Bandwidth:
    """Bytes a second each way of a spill file's disk: as last measured on this machine, else by a trial now.

    Raises:
        UserError: the trial failed.
    """
    folder = kept_folder()
    key = f"{os.uname().nodename} {Path(file.folder).stat().st_dev}"
    known = _known(folder / NAME) if folder else {}
    if key not in known:
        measured = file.measured()
        known[key] = [measured.out, measured.back]
        with suppress(OSError):  # the next run measures again
            if folder:
                write(folder / NAME, json.dumps(known).encode())
    return Bandwidth(*known[key])


def _known(place: Path) -> dict[str, list[float]]:
    """What the file says; nothing if it is not there, or says anything else."""
    with suppress(ValueError, TypeError, AttributeError):
        return {key: [float(out), float(back)] for key, (out, back) in json.loads(read(place) or b"{}").items()
                if min(float(out), float(back)) > 0}
    return {}
