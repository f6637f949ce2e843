"""From a collective, an algorithm's name and an array to work under way: one engine a thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from zlib import crc32

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import planners
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Plan, Recv, Send, Step
from scaffe.collectives.runtime.backend import Backend
from scaffe.collectives.runtime.executor import Execution
from scaffe.collectives.runtime.shared_levels import Group, above, require
from scaffe.collectives.runtime.signature import CallSignature
from scaffe.collectives.runtime.watch import Watch
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport import wire
from scaffe.collectives.transport.transport import TAG

PLANS_KEPT = 1024
TAGS = 32_000
"""MPI promises tags up to 32,767."""


class Engine:
    """Runs blocking collectives for one thread, on a communicator, a channel and a cache of plans of its own."""

    def __init__(self, comm, topology: Topology, watch: Watch, host: Backend) -> None:
        """`comm`: mpi4py communicator that only this engine uses, and what its `host` backend is made of."""
        self.watch, self.comm = watch, comm
        self.backends: dict[str, Backend] = {"host": host}
        self._topology = topology
        self._agreed: set[CallSignature] = set()
        self._cached: OrderedDict[tuple[CallSignature, int], Execution] = OrderedDict()

    def run(self, signature: CallSignature, array: Any, source: Any, after: Any = None) -> Any:
        """Take part in `signature` with this rank's flat array, in place; MPI's own reductions read `source` instead.

        The ranks have agreed on it. `after`, and what it returns: points in the place's own order (see Backend).
        """
        backend = self.backends[signature.place]
        backend.begin(after)
        try:
            self._run(backend, signature, array, source)
        except BaseException:
            backend.abandon()
            raise
        return backend.end()

    def _run(self, backend: Backend, signature: CallSignature, array: Any, source: Any) -> None:
        self.watch.label = signature.collective
        algorithm, _ = wire.split(signature.algorithm)
        if algorithm in backend.calls:
            with self.watch.for_any(signature.collective):
                backend.calls[algorithm].run(signature.collective, source, array, signature.op, signature.root)
            return
        if source is not array:
            backend.copy(array, source)
        if above(algorithm) is None:
            self._run_plan(signature, algorithm, array, Group(self._topology, signature.root))
        else:
            backend.levels.run(signature, array, lambda group: self._run_plan(signature, algorithm[1:], array, group))

    def message_pair(self, array: Any, place: str) -> Callable[[], None]:
        """A call that sends `array` from rank 0 to rank 1 and back; other ranks do nothing."""
        backend = self.backends[place]
        whole = (0, array.size)
        steps: dict[int, tuple[Step, ...]] = {
            0: (Send(1, *whole), Recv(1, *whole)),
            1: (Recv(0, *whole), Send(0, *whole)),
        }
        plan = Plan(self.comm.rank, self.comm.size, array.size, steps.get(self.comm.rank, ()))
        backend.transport.tag = TAG
        execution = Execution(plan, array, "sum", backend.transport)

        def there_and_back() -> None:
            backend.begin(backend.point(None))
            execution.run(self.watch)
            if (point := backend.end()) is not None:
                point.hold_and_end()
        return there_and_back

    def _run_plan(self, signature: CallSignature, algorithm: str, array: Any, group: Group) -> None:
        key = (signature, self.backends[signature.place].transport.address(array))
        execution = self._cached.get(key)
        if execution is None:
            execution = self._cached[key] = self._build(signature, algorithm, array, group)
            if len(self._cached) > PLANS_KEPT:
                self._cached.popitem(last=False)[1].free()
        execution.run(self.watch)

    def _build(self, signature: CallSignature, algorithm: str, array: Any, group: Group) -> Execution:
        rank = self.comm.rank if group.ranks is None else list(group.ranks).index(self.comm.rank)
        _, half = wire.split(signature.algorithm)
        n_bytes_per_elem = wire.ITEM_BYTES if half else array.itemsize
        call = Call(group.topology, array.size, max(signature.chunk_bytes // n_bytes_per_elem, 1), group.root,
                    group.counts)
        plan = planners.plan(signature.collective, algorithm, rank, call)
        backend = self.backends[signature.place]
        backend.transport.tag = _tag(signature)
        transport = backend.wired(half) if half else backend.transport
        return Execution(plan, array, signature.op, transport, group.ranks)

    def agree(self, signature: CallSignature) -> None:
        """Check, once per signature, that all ranks make the same call and that it can be done.

        Raises the same CommError on every rank where they do not or it cannot.
        """
        if signature not in self._agreed:
            self.compare(signature, self._fault(signature))
            self._agreed.add(signature)

    def compare(self, signature: CallSignature, fault: str) -> None:
        """Raise the same CommError on every rank where the ranks' signatures differ or one has a `fault`."""
        with self.watch.for_any(signature.collective):
            everyone = self.comm.allgather((signature, fault))
        for rank, (other, its_fault) in enumerate(everyone):
            if its_fault:
                raise CommError(its_fault, everywhere=True)
            if other != everyone[0][0]:
                raise CommError(f"ranks disagree: rank 0 has {everyone[0][0]}, rank {rank} has {other}",
                                everywhere=True)

    def _fault(self, signature: CallSignature) -> str:
        try:
            if not 0 <= signature.root < self.comm.size:
                raise CommError(f"root must be a rank below {self.comm.size}, not {signature.root}")
            algorithm = wire.split(signature.algorithm)[0]
            backend = self.backends[signature.place]
            if fault := backend.fault(algorithm):
                return fault
            if algorithm not in backend.calls:
                require(signature.collective, algorithm, self._topology)
            wire.require(signature.collective, signature.algorithm, signature.dtype)
        except CommError as error:
            return str(error)
        return ""


def _tag(signature: CallSignature) -> int:
    """Messages of different calls do not meet: ranks whose calls differ wait, and are found out (see `dispute`)."""
    return TAG + 1 + crc32(str(signature).encode()) % TAGS
