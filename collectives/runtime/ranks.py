"""What the ranks of an MPI job share below the Communicator: nodes, windows, and one engine per thread."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from scaffe.collectives.cuda.device import Point
from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance.fencing import FENCE
from scaffe.collectives.fault_tolerance.losses import Losses, loss_notification
from scaffe.collectives.launch import may_use_threads
from scaffe.collectives.request import Request
from scaffe.collectives.runtime import memories
from scaffe.collectives.runtime.arguments import Allocation, CallSignature, place_in_split
from scaffe.collectives.runtime.backend import Backend
from scaffe.collectives.runtime.device_on_demand import DeviceOnDemand, device_call
from scaffe.collectives.runtime.engine import Engine
from scaffe.collectives.runtime.fault_tolerant_messages import FaultTolerantMessages
from scaffe.collectives.runtime.helper_threads import ProgressThread, Watch
from scaffe.collectives.runtime.mismatch import MismatchDetector
from scaffe.collectives.runtime.mpi_calls import MpiCalls, exchange
from scaffe.collectives.runtime.point_to_point import PointToPoint
from scaffe.collectives.shared.node import NodeGroup, node_comm
from scaffe.collectives.shared.window import Windows
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport.host_memory import shortage
from scaffe.collectives.transport.transport import HostTransport
from scaffe.collectives.tuning.device_choice import Links
from scaffe.collectives.tuning.table import TuningTable

if TYPE_CHECKING:
    from scaffe.collectives.cuda.setup import Device

OUTLAST_SECONDS = 30.0
"""Where ranks may be lost, waiting takes two deadlines, or this much more than one: a stopped rank is ended then."""


class Ranks:
    """Engines over one MPI communicator: one for the caller's thread, one for the helper thread.

    Attributes:
        comm: mpi4py communicator that is ours alone.
        losses, check_lost, has_ended: what is known of losses; raises RankLost after one; whether all ranks know.
        patience: seconds after which waiting ends the job.
    """

    def __init__(self, comm: Any, deadline: float, give_up: Callable[[str], None],
                 node_of_rank: Sequence[Hashable] | None = None, parent: Losses | None = None) -> None:
        """``deadline``: seconds after which a peer that does not come is missing; ``give_up``: ends the job with a line
        when a peer is missing."""
        self.comm, self.losses, self._give_up, self.has_ended = comm, Losses(comm, parent), give_up, False
        self.check_lost = self.losses.check
        self.patience = deadline + (0 if self.losses.fault else max(deadline, OUTLAST_SECONDS))
        self._set_up(node_of_rank, deadline)

    @loss_notification
    def _set_up(self, node_of_rank: Sequence[Hashable] | None, deadline: float) -> None:
        comm = self.comm
        if not self.losses.fault:
            FENCE.watch(comm, deadline)
        self._node_comm = node_comm(comm, node_of_rank, self.losses.register)
        self.topology = Topology(comm.allgather(self._node_comm.bcast(comm.rank)))
        self.windows = Windows(self._node_comm, comm)
        self.calls = MismatchDetector(self._dup(comm) if (has_threads := may_use_threads()) else None, self._give_up)
        self._engines: list[tuple[Engine, NodeGroup, bool]] = []
        self.on_device = DeviceOnDemand(comm, self._node_comm, self.topology, self._engines, self.compare,
                                        self.losses)
        self.engine = self._make_engine(backs_off=False)
        self.run = self.engine.run
        self._helper = self._make_engine(backs_off=True) if has_threads else None
        self._progress = ProgressThread()
        self.messages = PointToPoint(self._dup(comm), self.patience, self.losses)
        self._fault_tolerant: list[FaultTolerantMessages] = []

    def submit(self, signature: CallSignature, array: Any, source: Any, after: Any = None) -> Request:
        """As `run`, on the helper thread; at once where MPI does not let two threads call it, and by NCCL, which the
        host does not wait for."""
        helper, label = self._helper, f"rank {self.comm.rank}: i{signature.collective}"
        if self.engine.backends[signature.memory].streams is not None:
            after = Point.of(after)
        if helper is None or signature.algorithm.library == "nccl":
            return Request.completed(label, self.engine.run(signature, array, source, after, holds=False))
        task = partial(self._run_on_helper, helper, signature, array, source, after)
        return self._progress.submit(label, task, helper.watch.text)

    def _run_on_helper(self, helper: Engine, signature: CallSignature, array: Any, source: Any,
                       after: Any) -> Point | None:
        if self.on_device.device is not None:
            self.on_device.take_gpu()
        if self.losses.has_loss:
            raise self.losses.error()
        return helper.run(signature, array, source, after, holds=False)

    def _failed(self, error: Exception) -> Exception:
        """What to raise where a collective has failed: an MPI that fails may do so since ranks made different calls."""
        error = self.losses.as_rank_lost(error)
        if not isinstance(error, CommError):
            self.calls.await_comparison()
        return error

    def _check_calls(self) -> None:
        """`MismatchDetector.check` in a thread of its own."""
        self.on_device.take_gpu()
        self.losses.or_default(self.calls.check, None)

    def _check_waiting(self) -> None:
        """While this rank waits for others in shared memory, which MPI does not see."""
        self.losses.check()
        self.calls.check()

    @loss_notification
    def agree(self, signature: CallSignature) -> None:
        """Records a call and checks that all ranks make it. Raises CommError: the same on every rank, where they do not
        or it cannot be done."""
        with self.calls.recorded(signature):
            self.engine.agree(signature)

    @loss_notification
    def compare(self, call: str, fault: str) -> None:
        with self.calls.recorded(call):
            self.engine.compare(call, fault)

    def refuse(self, what: str, fault: str) -> NoReturn:
        """This rank's call of `what` cannot be: the others learn it where they ask whether all agree. Raises CommError
        always, the same on every rank."""
        self.compare(f"{what} that cannot be: {fault}", fault)
        raise CommError(fault)

    def refuse_on_helper(self, signature: CallSignature) -> None:
        """Raises CommError where the non-blocking form of a call cannot be had."""
        self.engine.backends[signature.memory].refuse_on_helper(signature.collective, signature.algorithm)

    @loss_notification
    def device(self, signature: CallSignature) -> Device:
        return self.on_device.setup(signature)

    @loss_notification
    def resolved_on_device(self, signature: CallSignature, array: Any, table: TuningTable) -> CallSignature:
        """Resolves what a call on the CuPy array `array` leaves open, with the tuned `table`."""
        return self.device(signature).resolved(signature, array, table)

    @loss_notification
    def alloc(self, asked: Allocation) -> Any:
        """Allocates a zeroed flat array that the node's ranks have mapped; all ranks call it.

        Raises:
            CommError: the same on every rank, where one cannot ask so, they ask for different arrays, or a node has
                not as much host memory.
        """
        n_elems, dtype, memory, fault = asked
        n_bytes = n_elems * dtype.itemsize
        if not fault and memory == "host":
            fault = shortage(n_bytes * self._node_comm.size, f"{self._node_comm.size} x {n_bytes} bytes")
        self.compare(f"alloc of {n_elems} x {dtype.name} in {memory} memory", fault and f"alloc: {fault}")
        if memory == "host":
            return self.windows.allocate(n_bytes).view(dtype)
        return self.device(device_call("alloc", n_elems, dtype.name)).alloc(n_elems, dtype)

    def describe_device(self) -> str:
        return self.device(device_call("describe_device")).describe()

    @loss_notification
    def wait_for_device(self) -> None:
        """See Communicator."""
        self.on_device.wait()
        self.losses.check()

    def links(self) -> Links:
        return self.device(device_call("links")).links

    @loss_notification
    def message_pair(self, array: Any) -> Callable[[], None]:
        memory = memories.of(array)
        flat = memory.flat(array)
        if memory is memories.DEVICE:
            self.device(device_call("message", flat.size, flat.dtype.name))
        return self.engine.message_pair(flat, memory.name)

    @loss_notification
    def split(self, color: Any, key: Any) -> tuple[Any, list[int]]:
        """Arguments as in `Communicator.split`. Returns mpi4py's communicator of the ranks of this color, None without
        one; and the node of each of them."""
        from mpi4py import MPI

        fault = ""
        try:
            color, key = place_in_split(None if color == MPI.UNDEFINED else color, key)
        except CommError as error:
            fault = str(error)
        self.compare("split", fault and f"split: {fault}")
        made = self.comm.Split(MPI.UNDEFINED if color is None else color, key)
        if made == MPI.COMM_NULL:
            return None, []
        return made, [self.topology.node_of_rank[rank] for rank in made.allgather(self.comm.rank)]

    def subset(self, ranks: Sequence[int]) -> tuple[Any, list[int]]:
        """Makes a communicator of some ranks, who alone call it; returns as `split` does."""
        group = self.comm.Get_group()
        chosen = group.Incl(ranks)
        made = self.comm.Create_group(chosen)
        chosen.Free()
        group.Free()
        return made, [self.topology.node_of_rank[rank] for rank in ranks]

    def end(self) -> Any:
        """After a loss: ends what still runs, nobody uses these ranks again. Returns mpi4py's communicator, which is
        revoked."""
        self.losses.end()
        if self.on_device.device is not None:
            self.on_device.device.abandon()
        self._progress.stop()
        for engine, _, _ in self._engines:
            engine.watch.close()
        return self.comm

    def fault_tolerant_messages(self) -> FaultTolerantMessages:
        self._fault_tolerant.append(FaultTolerantMessages(self.comm.Dup(), self.patience))
        return self._fault_tolerant[-1]

    @loss_notification
    def free(self) -> None:
        """Ends the watching threads, then frees what these ranks hold of MPI; after a loss only the threads end."""
        self._progress.stop()
        messages = [self.messages, *(each.messages for each in self._fault_tolerant)]
        if not self.losses.has_loss:
            fault = next(filter(None, (each.fault() for each in messages)), "")
            self.compare("free", fault and f"free: {fault}")
        for engine, _, _ in self._engines:
            engine.watch.close()
            engine.watch.join()
        if self.losses.has_loss:
            if self.on_device.device is not None:
                self.on_device.device.abandon()
            self.losses.close()
            return
        if self.on_device.device is not None:
            self.on_device.device.free()
        for each in messages:
            each.drain()
        self.calls.drain()
        for engine, node, _ in self._engines:
            engine.free()
            node.free()
        for own in self._fault_tolerant:
            own.free()
        self.losses.free()

    @loss_notification
    def barrier(self) -> None:
        self.calls.record("barrier")
        with self.engine.watch.for_any("barrier"):
            self.comm.Barrier()

    @loss_notification
    def exchange(self, call: str, value: Any, root: Any = 0) -> Any:
        """Exchanges objects; arguments and result as `mpi_calls.exchange` has them."""
        text = f"{call} of objects" + ("" if call == "allgather" else f" (root {root!r})")
        with self.calls.recorded(text), self.engine.watch.for_any(text):
            return self.losses.checked(exchange(self.comm, text, call, value, root))

    def _make_engine(self, backs_off: bool) -> Engine:
        node = NodeGroup(self._dup(self._node_comm), self.windows, self.patience, self._check_waiting)
        watch = Watch(self.comm.rank, self.patience, self.losses.unless_lost(self._give_up), self._check_calls,
                      lambda: self.losses.or_default(self.calls.late, []))
        comm = self._dup(self.comm)
        host = Backend(HostTransport(comm, backs_off), node, {"mpi": MpiCalls(comm)})
        engine = Engine(comm, self.topology, watch, host, self._failed)
        self._engines.append((engine, node, backs_off))
        return engine

    def _dup(self, comm: Any) -> Any:
        return self.losses.register(comm.Dup())
