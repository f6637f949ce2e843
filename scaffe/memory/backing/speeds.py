"""Speeds of backing stores, each measured once and kept in the cache folder, so that later runs are planned without a
trial."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.memory.backing.spill_file import N_AT_ONCE, DiskLanes, SpillFile
from scaffe.memory.problem.iteration import Bandwidth
from scaffe.private_files import kept_folder, read, write


def kept_speed(name: str, key: str, measure: Callable[[], Bandwidth]) -> Bandwidth:
    """Bytes a second each way, from a file in the cache folder if it is there, else measured now."""
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
    with suppress(ValueError, TypeError, AttributeError):
        return {key: [float(out), float(back)] for key, (out, back) in json.loads(read(place) or b"{}").items()
                if min(float(out), float(back)) > 0}
    return {}


DISK = "disks.json"
DISK_TRIAL_BYTES = 128 << 20


def disk_speed(file: SpillFile) -> Bandwidth:
    """Bytes a second each way of a spill file's disk, as last measured on this machine, else by a trial now. Raises
    UserError if the trial failed."""
    key = f"{os.uname().nodename} {Path(file.folder).stat().st_dev} {N_AT_ONCE}"
    return kept_speed(DISK, key, lambda: measured(file))


def measured(file: SpillFile) -> Bandwidth:
    """Bytes a second each way, alone, by one trial. Raises UserError."""
    file.reserve(DISK_TRIAL_BYTES)
    lanes = DiskLanes(file)
    try:
        with mmap.mmap(-1, DISK_TRIAL_BYTES) as memory:
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


LINK = "links.json"
LINK_TRIAL_BYTES = 64 << 20


def link_speed(memory: Any) -> Bandwidth:
    """Bytes a second from the current device and to it, each way alone, as last measured on this machine, else by a
    trial now. Links carry both ways at once. ``memory``: uint8, on the device; its contents are lost."""
    key = _link_key(device.current())
    return replace(kept_speed(LINK, key, lambda: _measured(memory[:LINK_TRIAL_BYTES])), at_once=True)


def known_link(number: int) -> Bandwidth | None:
    """The same of a device, as last measured on this machine; None if it has not been."""
    folder = kept_folder()
    found = _known(folder / LINK).get(_link_key(number)) if folder else None
    return Bandwidth(found[0], found[1], at_once=True) if found else None


def _link_key(number: int) -> str:
    return f"{os.uname().nodename} {device.bus_id(number)} {device.describe(number)['Name']}"


def _measured(memory: Any) -> Bandwidth:
    """Of two copies each way the second counts, since the first may set something up."""
    place, stream = device.pinned(memory.nbytes, np.uint8), device.current_stream()
    place[...] = 0
    seconds = []
    for copy in (device.copy_to_pinned, device.copy_from_pinned):
        copy(memory, place, stream)
        marks = [device.load().cuda.Event() for _ in range(2)]
        marks[0].record(stream)
        copy(memory, place, stream)
        marks[1].record(stream)
        marks[1].synchronize()
        seconds.append(max(float(device.load().cuda.get_elapsed_time(*marks)) / 1e3, 1e-9))
    return Bandwidth(memory.nbytes / seconds[0], memory.nbytes / seconds[1])
