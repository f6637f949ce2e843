"""A layer in which ranks are killed or stopped, each in a pass of its own: for the tests of ranks that go on."""

import os
import signal
import sys
import threading
from pathlib import Path

from mortal import rank
from passing import Passing


class Doomed(Passing):
    """``param_str``: ``rank:pass[:signal[:whom]],...``, KILL and the rank itself if none. Passes count over all layers
    of this process; whom may be a rank without a net.

    Ranks that are started for lost ones live on. Who starts them waits for them here, so that they come in time.
    """

    n_all = 0

    def setup(self, bottom, top):
        super().setup(bottom, top)
        self._dooms = {}
        for doom in filter(None, self.param_str.split(",")):
            who, when, *how = doom.split(":")
            if int(who) == rank():
                self._dooms[int(when)] = (*how, *("KILL", who)[len(how):])

    def passed(self, n_passes):
        Doomed.n_all += 1
        for thread in threading.enumerate():
            if thread.name == "collectives-joining-ranks":
                thread.join()
        if "join" not in sys.argv and Doomed.n_all in self._dooms:
            how, whom = self._dooms[Doomed.n_all]
            os.kill(process_of(int(whom)), signal.Signals[f"SIG{how}"])


def process_of(number):
    """The process of a rank that the same launcher has started on this machine."""
    if number == rank():
        return os.getpid()
    for path in Path(f"/proc/{os.getppid()}/task").glob("*/children"):
        for pid in path.read_text().split():
            if f"OMPI_COMM_WORLD_RANK={number}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return int(pid)
    raise ProcessLookupError(f"rank {number}")
