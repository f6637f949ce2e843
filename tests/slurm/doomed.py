"""A layer in which ranks are killed or stopped, each in a pass of its own: for the tests of ranks that go on."""

import os
import signal
import sys
import threading

from mortal import rank
from passing import Passing


class Doomed(Passing):
    """``param_str``: ``rank:pass[:signal],...``, KILL if none. Passes count over all layers of this process.

    Ranks that are started for lost ones live on. Who starts them waits for them here, so that they come in time.
    """

    n_all = 0

    def setup(self, bottom, top):
        super().setup(bottom, top)
        dooms = [doom.split(":") for doom in filter(None, self.param_str.split(","))]
        doomed = {int(who): (int(when), signal.Signals[f"SIG{(*how, 'KILL')[0]}"]) for who, when, *how in dooms}
        self._at, self._signal = doomed.get(rank(), (0, signal.SIGKILL)) if doomed else (0, signal.SIGKILL)

    def passed(self, n_passes):
        Doomed.n_all += 1
        for thread in threading.enumerate():
            if thread.name == "collectives-newcomers":
                thread.join()
        if "join" in sys.argv:
            return
        if Doomed.n_all == self._at:
            os.kill(os.getpid(), self._signal)
