"""The figures of the GPU that is there, for ``summary -memory_of gpu``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaffe.layers.kernels import device
from scaffe.memory.backing.speeds import known_link
from scaffe.memory.problem.cards import DEFAULT, PART_OF_HALF, PART_OF_MEMORY, CardSpeeds, named, speeds_of
from scaffe.memory.problem.costs import Speed


def speeds_here(dtype: np.dtype, tf32: bool = True) -> CardSpeeds:
    """The figures of GPU 0: those of its name, or what its clocks give if it has none of the known ones; with the speed
    of its link as training has measured it, if it has. Without a GPU, a named card's. Arguments as for
    ``Card.speed``."""
    if device.missing():
        found = speeds_of(DEFAULT, dtype, tf32)
        return replace(found, source=f"{found.source}, since no GPU is here")
    name = device.describe(0)["Name"]
    found = speeds_of(named(name) or DEFAULT, dtype, tf32)
    if not named(name):
        products, n_bytes = device.speeds()
        found = replace(found, speed=Speed(PART_OF_HALF * products, PART_OF_MEMORY * n_bytes))
    link = known_link(0)
    source = f"figures of {name}, its link " + ("as measured" if link else "not measured yet")
    return replace(found, bandwidth=link or found.bandwidth, source=source)
