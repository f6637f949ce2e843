"""Working memory of passes: one piece a thread and name, so that what many layers need in turns is there once."""

from __future__ import annotations

import threading

import numpy as np

from scaffe.layers.kernels.cpu.memory import zeros

_held = threading.local()


def workspace(name: str, n_bytes: int) -> np.ndarray:
    """So many bytes, uint8, of any contents, until the thread asks for more under that name, or another layer runs."""
    memory: np.ndarray | None = _held.__dict__.get(name)
    if memory is None or memory.nbytes < n_bytes:
        memory = _held.__dict__[name] = zeros(n_bytes, np.uint8)
    return memory[:n_bytes]
