"""The GPUs of a communicator's ranks, set up at the first call on device memory: until then no CUDA is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scaffe.collectives.cuda.device import current, make_current
from scaffe.collectives.fault_tolerance.losses import Losses
from scaffe.collectives.planning.algorithm import Algorithm
from scaffe.collectives.runtime.arguments import CallSignature
from scaffe.collectives.runtime.engine import Engine
from scaffe.collectives.shared.node import NodeGroup
from scaffe.collectives.topology import Topology

if TYPE_CHECKING:
    from scaffe.collectives.cuda.setup import Device

AUTO = Algorithm(selection="auto")


def device_call(what: str, n_elems: int = 0, dtype: str = "uint8") -> CallSignature:
    """The signature of a call on device memory that is no collective."""
    return CallSignature(what, AUTO, n_elems, dtype, memory="device")


class DeviceOnDemand:
    """Sets up device memory for all engines of a communicator. ``device``: what has been set up; None before the first
    call."""

    def __init__(self, comm: Any, node_comm: Any, topology: Topology,
                 engines: Sequence[tuple[Engine, NodeGroup, bool]], compare: Callable[[str, str], None],
                 losses: Losses) -> None:
        self._comm, self._node_comm, self._topology = comm, node_comm, topology
        self._engines, self._compare, self._losses = engines, compare, losses
        self.device: Device | None = None
        self._gpu: int | None = None

    def setup(self, signature: CallSignature) -> Device:
        """Sets device memory up at the first call, which all ranks make with the same `signature`. Raises CommError:
        the same on every rank, where signatures differ or a rank has no device."""
        if self.device is None:
            from scaffe.collectives.cuda.device import missing
            from scaffe.collectives.cuda.nccl_watch import Surroundings
            from scaffe.collectives.cuda.setup import Device

            self._compare(str(signature), missing())
            self._gpu = current()
            watch, losses = self._engines[0][0].watch, self._losses
            ranks = Surroundings(watch.deadline, not losses.fault, lambda: losses.has_loss, self._together, watch.late,
                                 watch.failed)
            with watch.for_any("set-up of device memory"):
                self.device = Device(self._comm, self._node_comm, self._topology, ranks)
                for engine, group, backs_off in self._engines:
                    engine.backends["device"] = self.device.backend(engine.comm, group, backs_off)
        return self.device

    def wait(self) -> None:
        """Returns when the device has done what this rank's collectives have queued."""
        if self.device is not None:
            self.device.wait()

    @contextmanager
    def _together(self, label: str) -> Iterator[None]:
        self._compare(label, "")
        with self._engines[0][0].watch.for_any(label):
            yield

    def take_gpu(self) -> None:
        """Makes this rank's GPU current in a thread of ours: an MPI library may move device memory in any thread."""
        if self._gpu is not None:
            make_current(self._gpu)
