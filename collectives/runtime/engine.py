"""From a collective, an algorithm's name and an array to work under way: one engine a thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import planners
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Plan, Recv, Send, Step
from scaffe.collectives.runtime.backend import Means
from scaffe.collectives.runtime.executor import Execution
from scaffe.collectives.runtime.shared_levels import Group, above, require
from scaffe.collectives.runtime.watch import Watch
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport import wire
from scaffe.collectives.transport.transport import TAG

PLANS_KEPT = 1024
TAGS = 32_000
"""MPI promises tags up to 32,767."""


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
    place: str = "host"
    is_one_a_node: bool = False
    """An all-reduce whose result is left in one rank's array on each node."""

    def __str__(self) -> str:
        return (f"{self.collective} of {self.n_elems} x {self.dtype} in {self.place} memory by {self.algorithm} "
                f"({self.op}, root {self.root}, chunks of {self.chunk_bytes} bytes)")


class Engine:
    """Runs blocking collectives for one thread, on a communicator, a channel and a cache of plans of its own."""

    def __init__(self, comm, topology: Topology, watch: Watch, host: Means) -> None:
        """`comm`: mpi4py communicator that only this engine uses, and what its `host` means are made of."""
        self.watch, self.comm = watch, comm
        self.means: dict[str, Means] = {"host": host}
        self._topology = topology
        self._agreed: set[Job] = set()
        self._cached: OrderedDict[tuple[Job, int], Execution] = OrderedDict()

    def run(self, job: Job, array: Any, source: Any, after: Any = None) -> Any:
        """Take part in `job` with this rank's flat array, in place; MPI's own reductions read `source` instead.

        The ranks have agreed on the job. `after`, and what it returns: points in the place's own order (see Means).
        """
        means = self.means[job.place]
        means.begin(after)
        try:
            self._run(means, job, array, source)
        except BaseException:
            means.abandon()
            raise
        return means.end()

    def _run(self, means: Means, job: Job, array: Any, source: Any) -> None:
        self.watch.label = job.collective
        algorithm, _ = wire.split(job.algorithm)
        if algorithm in means.calls:
            with self.watch.for_any(job.collective):
                means.calls[algorithm].run(job.collective, source, array, job.op, job.root)
            return
        if source is not array:
            means.copy(array, source)
        if above(algorithm) is None:
            self._run_plan(job, algorithm, array, Group(self._topology, job.root))
        else:
            means.levels.run(job, array, lambda group: self._run_plan(job, algorithm[1:], array, group))

    def message_pair(self, array: Any, place: str) -> Callable[[], None]:
        """A call that sends `array` from rank 0 to rank 1 and back; other ranks do nothing."""
        means = self.means[place]
        whole = (0, array.size)
        steps: dict[int, tuple[Step, ...]] = {
            0: (Send(1, *whole), Recv(1, *whole)),
            1: (Recv(0, *whole), Send(0, *whole)),
        }
        plan = Plan(self.comm.rank, self.comm.size, array.size, steps.get(self.comm.rank, ()))
        means.transport.tag = TAG
        execution = Execution(plan, array, "sum", means.transport)

        def there_and_back() -> None:
            means.begin(means.point(None))
            execution.run(self.watch)
            if (point := means.end()) is not None:
                point.hold_and_end()
        return there_and_back

    def _run_plan(self, job: Job, algorithm: str, array: Any, group: Group) -> None:
        key = (job, self.means[job.place].transport.address(array))
        execution = self._cached.get(key)
        if execution is None:
            execution = self._cached[key] = self._build(job, algorithm, array, group)
            if len(self._cached) > PLANS_KEPT:
                self._cached.popitem(last=False)[1].free()
        execution.run(self.watch)

    def _build(self, job: Job, algorithm: str, array: Any, group: Group) -> Execution:
        rank = self.comm.rank if group.ranks is None else list(group.ranks).index(self.comm.rank)
        _, half = wire.split(job.algorithm)
        n_bytes_per_elem = wire.ITEM_BYTES if half else array.itemsize
        call = Call(group.topology, array.size, max(job.chunk_bytes // n_bytes_per_elem, 1), group.root,
                    group.counts)
        plan = planners.plan(job.collective, algorithm, rank, call)
        transport = self.means[job.place].transport
        transport.tag = _tag(job)
        transport = transport.wired(half) if half else transport
        return Execution(plan, array, job.op, transport, group.ranks)

    def agree(self, job: Job) -> None:
        """Check, once per job, that all ranks make the same call and that it can be done.

        Raises the same CommError on every rank where they do not or it cannot.
        """
        if job not in self._agreed:
            self.compare(job, self._fault(job))
            self._agreed.add(job)

    def compare(self, job: Job, fault: str) -> None:
        """Raise the same CommError on every rank where the ranks' jobs differ or one has a `fault`."""
        with self.watch.for_any(job.collective):
            everyone = self.comm.allgather((job, fault))
        for rank, (other, its_fault) in enumerate(everyone):
            if its_fault:
                raise CommError(its_fault, everywhere=True)
            if other != everyone[0][0]:
                raise CommError(f"ranks disagree: rank 0 has {everyone[0][0]}, rank {rank} has {other}",
                                everywhere=True)

    def _fault(self, job: Job) -> str:
        try:
            if not 0 <= job.root < self.comm.size:
                raise CommError(f"root must be a rank below {self.comm.size}, not {job.root}")
            algorithm = wire.split(job.algorithm)[0]
            means = self.means[job.place]
            if fault := means.fault(algorithm):
                return fault
            if algorithm not in means.calls:
                require(job.collective, algorithm, self._topology)
            wire.require(job.collective, job.algorithm, job.dtype)
        except CommError as error:
            return str(error)
        return ""


def _tag(job: Job) -> int:
    """Messages of different calls do not meet: ranks whose calls differ wait, and are found out (see `dispute`)."""
    return TAG + 1 + crc32(str(job).encode()) % TAGS
