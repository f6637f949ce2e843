"""How fast a disk is, measured once and kept in the cache folder."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.disk_lane import N_AT_ONCE
from scaffe.nets.memory.tier.disk_lanes import DiskLanes
from scaffe.nets.memory.tier.kept_speeds import kept_speed
from scaffe.nets.memory.tier.spill_file import SpillFile

NAME = "disks.json"
TRIAL_BYTES = 128 << 20


def disk_speed(file: SpillFile) -> Bandwidth:
    """Bytes a second each way of a spill file's disk: as last measured on this machine, else by a trial now.

    Raises:
        UserError: the trial failed.
    """
    key = f"{os.uname().nodename} {Path(file.folder).stat().st_dev} {N_AT_ONCE}"
    return kept_speed(NAME, key, lambda: measured(file))


def measured(file: SpillFile) -> Bandwidth:
    """Bytes a second each way, alone, by one trial. Raises UserError."""
    file.reserve(TRIAL_BYTES)
    lanes = DiskLanes(file)
    try:
        with mmap.mmap(-1, TRIAL_BYTES) as memory:
            trial = np.frombuffer(memory, np.uint8)
            trial[...] = 1
            for lane in (lanes.out, lanes.back):
                lane.begin(trial, 0, "trial").wait()
            del trial
    finally:
        lanes.close()
    found = lanes.bandwidth()
    if found is None:
        raise RuntimeError("a trial that moved nothing")
    return found
