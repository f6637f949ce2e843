"""A layer that kills its rank, for the tests of what the others and the launcher do then."""

import os
import signal
import threading
import time
from pathlib import Path

from passing import Passing

DIES_AT_PASS, OTHERS_SLEEP_SECONDS = 5, 600


def rank():
    """This process's rank, as its launcher says."""
    return int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMIX_RANK"])


def die():
    """Leave the time of death in a file, then go as one whom the kernel kills."""
    Path("died").touch()
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(Passing):
    """``param_str``: the rank to kill, and ``computing`` (in a forward pass, while the others go on into their
    messages) or ``communicating`` (once it waits for the others, who sleep in a forward pass)."""

    def setup(self, bottom, top):
        super().setup(bottom, top)
        victim, self._where = self.param_str.split()
        self._is_victim = rank() == int(victim)

    def passed(self, n_passes):
        if n_passes == DIES_AT_PASS:
            getattr(self, self._where)()

    def computing(self):
        if self._is_victim:
            die()

    def communicating(self):
        if self._is_victim:
            threading.Timer(0.5, die).start()
        else:
            time.sleep(OTHERS_SLEEP_SECONDS)
