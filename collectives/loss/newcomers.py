"""Ranks that are started beside a job that runs, from the side of the rank that starts them.

MPI_Comm_spawn is called by one rank alone, in a thread: the others train on, and a newcomer that dies while it starts
is a matter of this rank's only. The bridge to the others is built when the newcomers are ready (`loss.bridge`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scaffe.threads import Thread

LOOK_SECONDS = 0.05
READY_TAG = 1
LATEST_SECONDS = 30.0
"""How long who dismisses newcomers waits for a launcher that still starts them."""


class Newcomers:
    """Processes on their way into the job.

    Attributes:
        fault: why they will not come; empty as long as they may.
        are_ready: whether all of them wait to be taken in.
        pair: mpi4py communicator of this rank and them, in this order; None before they have started.
    """

    def __init__(self, command: Sequence[str], n_ranks: int, task: Any) -> None:
        """Starts them, in a thread.

        Args:
            command: the program and its arguments, for each of them. They get this process's working folder.
            n_ranks: how many.
            task: what they are told (picklable).
        """
        self.fault, self.are_ready = "", False
        self.pair: Any = None
        self._command, self._n_ranks, self._task = list(command), n_ranks, task
        self._is_dismissed = threading.Event()
        self._thread = Thread(self._run, "collectives-newcomers")
        self._thread.start()

    def dismiss(self) -> None:
        """They are not wanted any longer: they leave, wherever they are, unless they have been taken in."""
        self._is_dismissed.set()
        self._thread.join(LATEST_SECONDS)
        if self.pair is not None and not self.pair.Is_revoked():
            self.pair.Revoke()

    def told_in(self) -> None:
        """Tell them that all ranks have taken them in."""
        from mpi4py import MPI

        with suppress(MPI.Exception):  # one is lost: found out in the next call
            for rank in range(1, self.pair.size):
                self.pair.send(None, rank)

    def _run(self) -> None:
        from mpi4py import MPI

        try:
            self._start()
        except MPI.Exception as error:
            self.fault = str(error) if self.pair is not None else "the launcher starts none; has the allocation room?"

    def _start(self) -> None:
        from mpi4py import MPI

        info = MPI.Info.Create({"wdir": str(Path.cwd())})
        children = MPI.COMM_SELF.Spawn(self._command[0], self._command[1:], self._n_ranks, info)
        children.Set_errhandler(MPI.ERRORS_RETURN)
        self.pair = pair = children.Merge(high=False)
        pair.Set_errhandler(MPI.ERRORS_RETURN)
        for rank in range(1, pair.size):
            pair.send(self._task, rank)
        missing = set(range(1, pair.size))
        while missing and not self._is_dismissed.is_set():
            for rank in [rank for rank in missing if pair.Iprobe(rank, READY_TAG)]:
                pair.recv(source=rank, tag=READY_TAG)
                missing.discard(rank)
            if pair.Get_failed().size:
                pair.Revoke()
                raise MPI.Exception(MPI.ERR_PROC_FAILED)
            time.sleep(LOOK_SECONDS)
        self.are_ready = not missing

    def look(self) -> None:
        """Notice those that have died since they were ready."""
        if self.are_ready and self.pair.Get_failed().size:
            self.are_ready, self.fault = False, "a process that was started is lost"
            self.dismiss()
