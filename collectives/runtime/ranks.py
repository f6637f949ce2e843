"""What the ranks of an MPI job share below the Communicator: nodes, windows, and an engine for each thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.request import Request
from scaffe.collectives.runtime.backend import Backend
from scaffe.collectives.runtime.engine import Engine
from scaffe.collectives.runtime.mismatch import Disputes, checked
from scaffe.collectives.runtime.mpi_calls import MpiCalls
from scaffe.collectives.runtime.progress import ProgressThread
from scaffe.collectives.runtime.shared_levels import SharedLevels
from scaffe.collectives.runtime.signature import CallSignature
from scaffe.collectives.runtime.watch import Watch
from scaffe.collectives.shared.node import NodeGroup
from scaffe.collectives.shared.window import Windows
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport.transport import HostTransport

if TYPE_CHECKING:
    from scaffe.collectives.cuda.setup import Device

RANKS_PER_NODE_VARIABLE = "SCAFFE_RANKS_PER_NODE"


class Ranks:
    """Engines over one MPI communicator: one for the caller's thread, one for the helper thread."""

    def __init__(self, comm, deadline: float, give_up: Callable[[str], None],
                 node_of_rank: Sequence[Hashable] | None = None) -> None:
        """`comm`: mpi4py communicator that is ours alone. `give_up(line)`: ends the job when a peer is missing.
        `node_of_rank`: as Communicator has it."""
        self.comm = comm
        self._deadline, self._give_up = deadline, give_up
        self._node_comm = _node_comm(comm, node_of_rank)
        self.topology = Topology(comm.allgather(self._node_comm.bcast(comm.rank)))
        self.windows = Windows(self._node_comm)
        may_use_threads = _may_use_threads()
        self._disputes = Disputes(comm.Dup() if may_use_threads else None, give_up)
        self._engines: list[tuple[Engine, NodeGroup, bool]] = []
        self._device: Device | None = None
        self.engine = self._make_engine()
        self._helper = self._make_engine(patient=True) if may_use_threads else None
        self._progress = ProgressThread()

    def run(self, signature: CallSignature, array: Any, source: Any) -> None:
        """Run `signature` on the caller's thread. Raises CommError on every rank where the ranks do not agree on it.

        On a device it follows what the caller's current stream has been given, and that stream follows it.
        """
        self._agree(signature)
        after = self.engine.backends[signature.place].point(None)
        point = checked(lambda: self.engine.run(signature, array, source, after), self._disputes)
        if point is not None:
            point.hold_and_end()

    def submit(self, label: str, signature: CallSignature, array: Any, source: Any, after: Any = None) -> Request:
        """Run `signature` on the helper thread, or at once where MPI does not let two threads call it.

        The ranks agree on it here, in the order of the callers' program. Raises CommError as `run` does.
        after: on a device, the event that it follows; None for the end of the caller's current stream.
        """
        backend = self.engine.backends[signature.place]
        backend.refuse_on_helper(signature.collective, signature.algorithm)
        self._agree(signature)
        helper, after = self._helper, backend.point(after)
        if helper is None:
            return Request.completed(label, self.engine.run(signature, array, source, after))
        run = partial(helper.run, signature, array, source, after)
        return self._progress.submit(label, lambda: checked(run, self._disputes), helper.watch.text)

    def device(self, signature: CallSignature) -> Device:
        """What device buffers need, set up at the first call, which all ranks make for the same `signature`.

        Raises CommError on every rank where they do not or one has no device.
        """
        if self._device is None:
            from scaffe.collectives.cuda.device import missing
            from scaffe.collectives.cuda.setup import Device

            self._note(signature, lambda: self.engine.compare(signature, missing()))
            self._device = Device(self.comm, self._node_comm, self.topology)
            for engine, group, patient in self._engines:
                engine.backends["device"] = self._device.backend(engine.comm, group, patient)
        return self._device

    def alloc(self, n_elems: int, dtype: np.dtype, place: str) -> Any:
        """A zeroed flat array at `place` that the node's ranks have mapped; all ranks call it."""
        if place == "host":
            return self.windows.allocate(n_elems * dtype.itemsize).view(dtype)
        return self.device(CallSignature("alloc", "", n_elems, dtype.name, place=place)).alloc(n_elems, dtype)

    def _agree(self, signature: CallSignature) -> None:
        self._note(signature, lambda: self.engine.agree(signature))

    def _note(self, signature: CallSignature, agree: Callable[[], None]) -> None:
        self._disputes.note(signature)
        try:
            agree()
        except CommError:
            self._disputes.forget()
            raise

    def _make_engine(self, patient: bool = False) -> Engine:
        node = NodeGroup(self._node_comm.Dup(), self.windows, self._deadline, self._disputes.look)
        levels = SharedLevels(node, self.topology, self.comm.rank)
        watch = Watch(self.comm.rank, self._deadline, self._give_up, self._disputes.look, self._disputes.late)
        comm = self.comm.Dup()
        host = Backend(HostTransport(comm, patient), levels, {"mpi": MpiCalls(comm)})
        engine = Engine(comm, self.topology, watch, host)
        self._engines.append((engine, node, patient))
        return engine


def _node_comm(comm, node_of_rank: Sequence[Hashable] | None):
    """The ranks that share memory with this one and, where labels are given, have its label."""
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    per_node = int(os.environ.get(RANKS_PER_NODE_VARIABLE) or 0)
    if node_of_rank is not None:
        if len(node_of_rank) != comm.size:
            raise CommError(f"node_of_rank needs a label for each of {comm.size} ranks, not {len(node_of_rank)}",
                            everywhere=True)
        return node.Split(list(node_of_rank).index(node_of_rank[comm.rank]), comm.rank)
    return node.Split(node.rank // per_node, comm.rank) if per_node > 0 else node


def _may_use_threads() -> bool:
    from mpi4py import MPI

    if MPI.Query_thread() >= MPI.THREAD_MULTIPLE:
        return True
    if MPI.COMM_WORLD.rank == 0:
        sys.stderr.write("collectives: MPI does not grant MPI_THREAD_MULTIPLE, which the helper thread needs: "
                         "non-blocking collectives run when they are called\n")
    return False
