"""Freed memory that the C library keeps goes back to the system."""

from __future__ import annotations

import ctypes

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # mallopt's names
MOST_KEPT = 32 << 20  # that it accepts for the first
EACH_STEP, EACH_PASS = 2, 10  # passes: kernels are loaded in the first, and a plan is made again behind the third

_libc = ctypes.CDLL(None)


def return_freed_memory(limit: int = 0) -> None:
    """From now on the C library gives freed memory of a megabyte and more back to the system at once. Else it keeps
    what it takes to be needed again soon: 115 MB of GoogLeNet's 557 in a limit of 242 MB. No effect where it has no
    such setting.

    Args:
        limit: bytes, of which it may keep a 64th, since products that take memory anew in each call wait for pages
            else: fc6's gradient in CaffeNet, in four blocks of rows, takes 62 instead of 77 ms.
    """
    if hasattr(_libc, "mallopt"):
        for which in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            _libc.mallopt(which, min(max(limit // 64, 1 << 20), MOST_KEPT))


class Trim:
    """A tier that has the C library give back what lies free between what is in use: after each step of a net's first
    passes, in which kernels are loaded, and before each of some more. 50 MB of CaffeNet's 923 within a limit of 597 lay
    so. No effect where the library has no such call."""

    def __init__(self) -> None:
        self._n_passes = 0

    def before(self, step: int) -> None:
        """See Tier."""
        if step == 0:
            self._n_passes += 1
            self._trim(EACH_PASS)

    def again(self, step: int) -> None:
        """See Tier."""

    def after(self, step: int) -> None:
        """See Tier."""
        self._trim(EACH_STEP)

    def close(self) -> None:
        """See Tier."""

    def _trim(self, n_passes: int) -> None:
        if self._n_passes <= n_passes and hasattr(_libc, "malloc_trim"):
            _libc.malloc_trim(0)
