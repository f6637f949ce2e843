"""From a collective, an algorithm's name and an array to work under way: one engine a thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import planners
from .call import Call
from .errors import CommError
from .executor import Execution
from .mpi_calls import MpiCalls
from .plan import Plan, Recv, Send, Step
from .shared_levels import Group, SharedLevels, above, require
from .topology import Topology
from .transport import HostTransport
from .watch import Watch

PLANS_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Job:
    """One collective call as every rank must make it."""

    collective: str
    algorithm: str
    n_elems: int
    dtype: str
    op: str = "sum"
    root: int = 0
    chunk_bytes: int = 0

    def __str__(self) -> str:
        return (f"{self.collective} of {self.n_elems} x {self.dtype} by {self.algorithm} ({self.op}, root {self.root}, "
                f"chunks of {self.chunk_bytes} bytes)")


class Engine:
    """Runs blocking collectives for one thread, on a communicator, a channel and a cache of plans of its own."""

    def __init__(self, comm, topology: Topology, levels: SharedLevels, watch: Watch, patient: bool = False) -> None:
        """`comm`: mpi4py communicator that only this engine uses. `levels`: the shared-memory part of algorithms.
        `patient`: as HostTransport has it."""
        self.watch = watch
        self._comm, self._topology, self._levels = comm, topology, levels
        self._calls = MpiCalls(comm)
        self._transport = HostTransport(comm, patient)
        self._agreed: set[Job] = set()
        self._cached: OrderedDict[tuple[Job, int], Execution] = OrderedDict()

    def run(self, job: Job, array: np.ndarray, source: np.ndarray) -> None:
        """Take part in `job` with this rank's flat array, in place; MPI's own reductions read `source` instead.

        The ranks have agreed on the job.
        """
        self.watch.label = job.collective
        if job.algorithm == "mpi":
            with self.watch.for_any(job.collective):
                self._calls.run(job.collective, source, array, job.op, job.root)
        elif above(job.algorithm) is None:
            self._run_plan(job, job.algorithm, array, Group(self._topology, job.root))
        else:
            self._levels.run(job, array, lambda group: self._run_plan(job, job.algorithm[1:], array, group))

    def message_pair(self, array: np.ndarray) -> Callable[[], None]:
        """A call that sends `array` from rank 0 to rank 1 and back; other ranks do nothing."""
        whole = (0, array.size)
        steps: dict[int, tuple[Step, ...]] = {
            0: (Send(1, *whole), Recv(1, *whole)),
            1: (Recv(0, *whole), Send(0, *whole)),
        }
        plan = Plan(self._comm.rank, self._comm.size, array.size, steps.get(self._comm.rank, ()))
        execution = Execution(plan, array, "sum", self._transport)
        return lambda: execution.run(self.watch)

    def _run_plan(self, job: Job, algorithm: str, array: np.ndarray, group: Group) -> None:
        key = (job, array.ctypes.data)
        execution = self._cached.get(key)
        if execution is None:
            execution = self._cached[key] = self._build(job, algorithm, array, group)
            if len(self._cached) > PLANS_KEPT:
                self._cached.popitem(last=False)[1].free()
        execution.run(self.watch)

    def _build(self, job: Job, algorithm: str, array: np.ndarray, group: Group) -> Execution:
        rank = self._comm.rank if group.ranks is None else list(group.ranks).index(self._comm.rank)
        call = Call(group.topology, array.size, max(job.chunk_bytes // array.itemsize, 1), group.root)
        plan = planners.plan(job.collective, algorithm, rank, call)
        return Execution(plan, array, job.op, self._transport, group.ranks)

    def agree(self, job: Job) -> None:
        """Check, once per job, that all ranks make the same call and that it can be done.

        Raises the same CommError on every rank where they do not or it cannot.
        """
        if job in self._agreed:
            return
        with self.watch.for_any(job.collective):
            everyone = self._comm.allgather((job, self._fault(job)))
        for rank, (other, its_fault) in enumerate(everyone):
            if its_fault:
                raise CommError(its_fault, everywhere=True)
            if other != everyone[0][0]:
                raise CommError(f"ranks disagree: rank 0 has {everyone[0][0]}, rank {rank} has {other}",
                                everywhere=True)
        self._agreed.add(job)

    def _fault(self, job: Job) -> str:
        try:
            if not 0 <= job.root < self._comm.size:
                raise CommError(f"root must be a rank below {self._comm.size}, not {job.root}")
            require(job.collective, job.algorithm, self._topology)
        except CommError as error:
            return str(error)
        return ""
