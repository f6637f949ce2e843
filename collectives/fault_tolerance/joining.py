"""Ranks that join a job which runs: started beside it, and merged with its ranks or not at all."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scaffe.collectives.fault_tolerance import ulfm
from scaffe.collectives.fault_tolerance.finalize import FINALIZER
from scaffe.collectives.fault_tolerance.losses import agreed
from scaffe.collectives.launch import launched, load_mpi, while_starting
from scaffe.threads import Thread

LOOK_SECONDS = 0.05
READY_TAG = 1
LAUNCH_SECONDS = 30.0
"""How long `dismiss` waits for a launcher that still starts the processes."""


class JoiningRanks:
    """Processes that a rank has started to join the job, as that rank sees them.

    Attributes:
        fault: why they cannot join; empty as long as they may.
        are_ready: whether all of them wait to be merged.
        pair: mpi4py communicator of this rank and them, in this order; None before they have started.
    """

    def __init__(self, command: Sequence[str], n_ranks: int, task: Any) -> None:
        """Starts them, in a thread. ``command``: the program and its arguments, for each of them. They get this
        process's working folder."""
        self.fault, self.are_ready = "", False
        self.pair: Any = None
        self._command, self._n_ranks, self._task = list(command), n_ranks, task
        self._is_dismissed = threading.Event()
        self._thread = Thread(self._run, "collectives-joining-ranks")
        self._thread.start()

    def dismiss(self) -> None:
        """Ends the processes, unless they have been merged: those that still start end as soon as they have."""
        self._is_dismissed.set()
        self._thread.join(LAUNCH_SECONDS)
        if self.pair is not None and not self.pair.Is_revoked():
            self.pair.Revoke()

    def confirm(self) -> None:
        """Tells the processes that all ranks have merged with them."""
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
        """Checks that no process has died since it was ready; sets `fault` where one has."""
        if self.are_ready and self.pair.Get_failed().size:
            self.are_ready, self.fault = False, "a process that was started is lost"
            self.dismiss()


TAG = 2
SLOW_SECONDS = 30.0
"""MPI_Intercomm_merge takes some 20 ms. Where a rank dies in it, it may not return at all."""


def merged(comm: Any, pair: Any, give_up: Callable[[str], None]) -> Any:
    """Merges a communicator's ranks with the joining ones. All of its ranks call it.

    Args:
        comm: mpi4py's, which returns errors.
        pair: `JoiningRanks.pair`, on rank 0; None elsewhere.

    Returns:
        mpi4py's communicator of all, joining ranks last; None, on all ranks alike, where any of them is lost.
    """
    from mpi4py import MPI

    inter, everyone = None, None
    with suppress(MPI.Exception):
        inter = comm.Create_intercomm(0, pair if pair is not None else MPI.COMM_SELF, 1, TAG)
        inter.Set_errhandler(MPI.ERRORS_RETURN)
    if not agreed(comm, inter is not None and not inter.Get_failed().size) or inter is None:
        return None
    line = f"rank {comm.rank}: a rank was lost while new ones were joined, and MPI_Intercomm_merge does not return"
    timer = threading.Timer(SLOW_SECONDS, give_up, (line,))
    timer.daemon = True
    timer.start()
    with suppress(MPI.Exception):
        everyone = inter.Merge(high=False)
        everyone.Set_errhandler(MPI.ERRORS_RETURN)
    timer.cancel()
    if agreed(comm, everyone is not None):
        return everyone
    if everyone is not None and not everyone.Is_revoked():
        everyone.Revoke()
    return None


class JoiningRank:
    """This process, started by a rank of a job that it is to join."""

    def __init__(self, parent: Any) -> None:
        """``parent``: mpi4py intercommunicator to the rank that started this process, alone."""
        from mpi4py import MPI

        parent.Set_errhandler(MPI.ERRORS_RETURN)
        self._pair = parent.Merge(high=True)
        self._pair.Set_errhandler(MPI.ERRORS_RETURN)
        self._is_in = threading.Event()
        Thread(self._look, "collectives-joining-rank").start()
        self.task: Any = self._pair.recv(source=0)

    @classmethod
    def of_this_process(cls) -> JoiningRank | None:
        """This process, if a rank of a job has started it; else None."""
        if not launched():
            return None
        os.environ.setdefault(ulfm.VARIABLE, "1")  # Open MPI's launcher does not tell those that are spawned
        from_mpi = while_starting(load_mpi)
        parent = from_mpi.Comm.Get_parent()
        return None if parent == from_mpi.COMM_NULL else cls(parent)

    def join(self) -> Any:
        """Waits until the job's ranks have merged with this one. Ends the process where they go on without it. Returns
        mpi4py communicator of all ranks, joining ones last."""
        from mpi4py import MPI

        FINALIZER.is_spawned = True
        try:
            self._pair.send(None, 0, READY_TAG)
            MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)
            inter = MPI.COMM_WORLD.Create_intercomm(0, self._pair, 0, TAG)
            inter.Set_errhandler(MPI.ERRORS_RETURN)
            comm = inter.Merge(high=True)
            comm.Set_errhandler(MPI.ERRORS_RETURN)
            self._pair.recv(source=0)
        except MPI.Exception:
            FINALIZER.exit_spawned()
        self._is_in.set()
        return comm

    def _look(self) -> None:
        """Ends the process when the rank that has started it is lost or has dismissed it."""
        from mpi4py import MPI

        while not self._is_in.wait(LOOK_SECONDS):
            try:
                self._pair.Iprobe()
                is_over = self._pair.Is_revoked() or self._pair.Get_failed().size > 0
            except MPI.Exception:
                is_over = True
            if is_over:
                time.sleep(10 * LOOK_SECONDS)  # the confirmation may have come just before
                if not self._is_in.is_set():
                    FINALIZER.exit_spawned()
