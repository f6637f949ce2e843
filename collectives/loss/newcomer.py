"""A process that was started to become a rank of a job that runs, from its own side."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from scaffe.collectives.launch import all_through, launched, load_mpi
from scaffe.collectives.loss import ulfm
from scaffe.collectives.loss.bridge import crossed
from scaffe.collectives.loss.ending import ENDING
from scaffe.collectives.loss.newcomers import LOOK_SECONDS, READY_TAG
from scaffe.threads import Thread


class Newcomer:
    """This process on its way into a job.

    Attributes:
        task: what the rank that started it says is to be done.
    """

    def __init__(self, parent: Any) -> None:
        """Args:
            parent: mpi4py intercommunicator to the rank that started this process, alone.
        """
        from mpi4py import MPI

        parent.Set_errhandler(MPI.ERRORS_RETURN)
        self._pair = parent.Merge(high=True)
        self._pair.Set_errhandler(MPI.ERRORS_RETURN)
        self._is_in = threading.Event()
        Thread(self._look, "collectives-newcomer").start()
        self.task: Any = self._pair.recv(source=0)

    @classmethod
    def of_this_process(cls) -> Newcomer | None:
        """This process's way in; None where no rank of a job has started it."""
        if not launched():
            return None
        os.environ.setdefault(ulfm.VARIABLE, "1")  # Open MPI's launcher does not tell those that are spawned
        from_mpi = all_through(load_mpi)
        parent = from_mpi.Comm.Get_parent()
        return None if parent == from_mpi.COMM_NULL else cls(parent)

    def come_in(self) -> Any:
        """Waits until the job takes this process in; it leaves by itself where the job goes on without it.

        Returns:
            mpi4py communicator of all ranks, newcomers last.
        """
        from mpi4py import MPI

        ENDING.is_spawned = True
        try:
            self._pair.send(None, 0, READY_TAG)
            comm = crossed(self._pair)
            self._pair.recv(source=0)
        except MPI.Exception:
            ENDING.leave_spawned()
        self._is_in.set()
        return comm

    def _look(self) -> None:
        """Leave when the rank that has started this process is lost, or wants it no longer."""
        from mpi4py import MPI

        while not self._is_in.wait(LOOK_SECONDS):
            try:
                self._pair.Iprobe()
                is_over = self._pair.Is_revoked() or self._pair.Get_failed().size > 0
            except MPI.Exception:
                is_over = True
            if is_over:
                time.sleep(10 * LOOK_SECONDS)  # what came before may have been the permission to stay
                if not self._is_in.is_set():
                    ENDING.leave_spawned()
