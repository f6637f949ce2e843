"""How fast copies between a device and page-locked host memory are, measured once and kept in the cache folder."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.kept_speeds import kept_speed

NAME = "links.json"
TRIAL_BYTES = 64 << 20


def link_speed(memory: Any) -> Bandwidth:
    """Bytes a second from the current device and to it: as last measured on this machine, else by a trial now, each way
    alone. Links carry both at once.

    Args:
        memory: uint8, on the device; its contents are lost.
    """
    number = device.current()
    key = f"{os.uname().nodename} {device.bus_id(number)} {device.describe(number)['Name']}"
    return replace(kept_speed(NAME, key, lambda: _measured(memory[:TRIAL_BYTES])), at_once=True)


def _measured(memory: Any) -> Bandwidth:
    """The second of two copies each way counts: the first may set something up."""
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
