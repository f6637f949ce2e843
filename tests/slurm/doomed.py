"""A layer in which ranks are killed, each in a pass of its own: for the tests of ranks that go on."""

import os
import signal

from mortal import rank
from passing import Passing


class Doomed(Passing):
    """``param_str``: ``rank:pass,...``. Passes are counted over all layers that this process has made."""

    n_all = 0

    def setup(self, bottom, top):
        super().setup(bottom, top)
        doomed = dict(map(int, pair.split(":")) for pair in filter(None, self.param_str.split(",")))
        self._dies_at = doomed.get(rank(), 0) if doomed else 0

    def passed(self, n_passes):
        Doomed.n_all += 1
        if Doomed.n_all == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
