"""How fast a disk is, measured once and kept in the cache folder."""

from __future__ import annotations

import os
from pathlib import Path

from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.kept_speeds import kept_speed
from scaffe.nets.memory.tier.spill_file import SpillFile

NAME = "disks.json"


def disk_speed(file: SpillFile) -> Bandwidth:
    """Bytes a second each way of a spill file's disk: as last measured on this machine, else by a trial now.

    Raises:
        UserError: the trial failed.
    """
    return kept_speed(NAME, f"{os.uname().nodename} {Path(file.folder).stat().st_dev}", file.measured)
