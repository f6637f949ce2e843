"""The parameter server's cases of `bench`: an iteration of all workers, a read, an update."""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Callable

import numpy as np

from scaffe.collectives.bench.payload import HostBuffers, Payload
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.server import ParameterServer
from scaffe.collectives.server.tables.table import DTYPES
from scaffe.flags import whole

SAME_BYTES = {"clock": "allreduce", "read": "allgather", "update": "reduce_scatter"}
"""The server's cases, and for each the collective that moves the same bytes: its columns stand beside the server's."""
SLACK = whole(0, inf=math.inf)
ROW_BYTES = 4096
"""Length of a table's rows, where it divides the message size."""
FOR_SERVERS = {"slack": "0", "servers": 0, "scattered": False}
FOR_COLLECTIVES = {"overlap": False, "check_auto": False, "unmapped": False}
"""Flags that only such cases know, with their defaults."""


class ServerRunner:
    """One column: a server with one table, of which every worker reads and updates all rows."""

    def __init__(self, communicator: Communicator, options: Namespace, slack: float, n_elems: int,
                 buffers: HostBuffers) -> None:
        """Starts the server. All ranks call it. Raises CommError as ParameterServer does."""
        self.title = f"slack {slack:g}"
        self._communicator, self._case, self._slack, self._buffers = communicator, options.case, slack, buffers
        self._server = ParameterServer(communicator, slack, options.servers)
        row_elems = math.gcd(n_elems, ROW_BYTES // np.dtype(options.dtype).itemsize)
        table = self._server.table("bench", n_elems // row_elems, row_elems, dtype=options.dtype)
        keys = range(table.n_rows)
        self._batch = self._server.batch(table, np.random.default_rng(0).permutation(keys) if options.scattered
                                         else keys, "device" if options.memory == "device" else "host")
        self._server.start()

    def start(self, is_blocking: bool = True) -> Callable[[], None]:
        """Returns a call that runs the case once.

        `clock`: an update, its iteration's end, and the next iteration's read. `read`: an iteration's end and the
        next one's read. `update`: an update and its iteration's end, until the update has been applied.
        """
        if not self._server.is_worker:
            return lambda: None
        if self._case == "update":
            self._batch.pre_update()  # each call hands the buffer over and waits until it has it again
        return {"clock": self._clock, "read": self._read, "update": self._update}[self._case]

    def verify(self, payload: Payload, is_blocking: bool = True) -> None:
        """Adds known values to the table and reads them. All ranks call it. ``payload``: says the element type; the
        values are summed over the workers. Raises CommError on every rank, when an element is wrong on any."""
        payload = Payload(str(payload.dtype), self._server.n_workers, self._buffers)
        wrong = self._communicator.allgather_objects(self._n_wrong(payload) if self._server.is_worker else 0)
        if any(wrong):
            raise CommError(f"{self._case} with {self.title}: {sum(wrong)} wrong elements on ranks "
                            f"{[rank for rank, n in enumerate(wrong) if n]}", everywhere=True)

    def close(self) -> None:
        self._server.close()

    def _n_wrong(self, payload: Payload) -> int:
        """Wrong elements of the first read that must see all workers' updates; without a bound, of one that does."""
        payload.fill(self._batch.pre_update().reshape(-1), self._communicator.rank)
        self._batch.update()
        self._server.clock()
        until = time.monotonic() + self._communicator.deadline
        while True:
            for _ in range(0 if math.isinf(self._slack) else int(self._slack)):
                self._server.clock()
            rows = self._batch.read().reshape(-1)
            n_wrong = payload.n_wrong(rows, 0, rows.size, None)
            self._batch.post_read()
            self._server.clock()
            if not n_wrong or not math.isinf(self._slack) or time.monotonic() > until:
                return n_wrong

    def _clock(self) -> None:
        self._batch.pre_update()
        self._batch.update()
        self._read()

    def _read(self) -> None:
        self._server.clock()
        self._batch.read()
        self._buffers.synchronize()
        self._batch.post_read()

    def _update(self) -> None:
        self._batch.update()
        self._server.clock()
        self._batch.pre_update()


def slacks(options: Namespace) -> list[float]:
    """Reads the flags of the server's cases.

    Returns:
        The slack of each column, in the order given; empty for a collective's case.

    Raises:
        CommError: on every rank, a flag or an element type that the case does not know, or a slack that is no number.
    """
    of_server = options.case in SAME_BYTES
    foreign = FOR_COLLECTIVES if of_server else FOR_SERVERS
    for name, default in foreign.items():
        if getattr(options, name) != default:
            raise CommError(f"{options.case} knows no -{name}", everywhere=True)
    if not of_server:
        return []
    if options.memory == "host":
        raise CommError(f"{options.case}: -memory must be shared or device, not host", everywhere=True)
    if options.dtype not in DTYPES:
        raise CommError(f"{options.case}: -dtype must be one of {', '.join(DTYPES)}, not {options.dtype}",
                        everywhere=True)
    try:
        return [SLACK(text) for text in options.slack.split(",")]
    except ValueError:
        raise CommError(f"-slack needs whole numbers from {SLACK} or inf, as in 0,1,inf, not {options.slack}",
                        everywhere=True) from None
