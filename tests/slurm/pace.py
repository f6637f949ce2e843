"""A layer that lets a run be slow in its first lives, so that a test meets it before its end, and fast in its last."""

import os
import time

from passing import Passing

FAST_ITERATIONS, SLOW_SECONDS = 20, 0.1


class Pace(Passing):
    """From iteration 20 of a life on it naps, but for the last life (PACE_LIVES)."""

    def setup(self, bottom, top):
        super().setup(bottom, top)
        self._is_slow = int(os.environ.get("SLURM_RESTART_COUNT", "0")) < int(os.environ["PACE_LIVES"]) - 1

    def passed(self, n_passes):
        if self._is_slow and n_passes > FAST_ITERATIONS:
            time.sleep(SLOW_SECONDS)
