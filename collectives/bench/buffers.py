"""The benchmarks' buffers: how they are allocated, filled, read and waited for, in host and in GPU memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.cuda import device
from scaffe.collectives.errors import CommError
from scaffe.collectives.transport.available import shortage


class HostBuffers:
    """NumPy arrays."""

    def window(self, communicator: Communicator, n_elems: int, dtype: str) -> Any:
        """Allocates a buffer that the node's ranks share (Communicator.alloc): zeros, (n_elems,). All ranks call it."""
        return communicator.alloc(n_elems, dtype)

    def private(self, n_elems: int, dtype: str) -> Any:
        """Allocates a buffer of the rank's own: zeros, (n_elems,)."""
        return np.zeros(n_elems, dtype)

    def put(self, part: Any, values: np.ndarray) -> None:
        """Writes values (int64, exact in the buffer's dtype) to a part of a buffer of the same length."""
        part[:] = values

    def get(self, part: Any) -> np.ndarray:
        """Returns a part of a buffer in host memory."""
        values: np.ndarray = part
        return values

    def settle(self) -> None:
        """Returns when the device has done what calls have queued; host calls are done already."""

    def about(self, communicator: Communicator) -> dict[str, str]:
        """Says for a report how such buffers travel. All ranks call it."""
        return {}


class DeviceBuffers(HostBuffers):
    """CuPy arrays on this rank's GPU; the ranks of a node take its GPUs round-robin."""

    def __init__(self, communicator: Communicator) -> None:
        """Makes this rank's GPU the current one.

        Args:
            communicator: all of its ranks call it.

        Raises:
            CommError: on every rank, where one has no GPU.
        """
        missing = next(filter(None, communicator.allgather_objects(device.missing())), "")
        if missing:
            raise CommError(f"-memory device: {missing}", everywhere=True)
        device.use_by_rank(communicator.node_rank)
        self._cupy = device.load()

    def window(self, communicator: Communicator, n_elems: int, dtype: str) -> Any:
        """See HostBuffers."""
        return communicator.alloc(n_elems, dtype, "device")

    def private(self, n_elems: int, dtype: str) -> Any:
        """See HostBuffers."""
        return self._cupy.zeros(n_elems, dtype)

    def put(self, part: Any, values: np.ndarray) -> None:
        """See HostBuffers."""
        part[...] = self._cupy.asarray(values.astype(part.dtype))

    def get(self, part: Any) -> np.ndarray:
        """See HostBuffers."""
        values: np.ndarray = part.get()
        return values

    def settle(self) -> None:
        """See HostBuffers: the collective's result follows on the current stream."""
        self._cupy.cuda.get_current_stream().synchronize()

    def about(self, communicator: Communicator) -> dict[str, str]:
        """See HostBuffers."""
        return {"transport": communicator.describe_device()}


def of(memory: str, communicator: Communicator) -> HostBuffers:
    """Makes the buffers for a kind of memory.

    Args:
        memory: `host`, `shared` or `device`.
        communicator: all of its ranks call it.

    Raises:
        CommError: as DeviceBuffers does.
    """
    return DeviceBuffers(communicator) if memory == "device" else HostBuffers()


def check_room(communicator: Communicator, n_bytes: int) -> None:
    """Asks each node for the memory of its ranks' two buffers, before anything is measured. All ranks call it.

    Args:
        communicator: the ranks.
        n_bytes: of the longest message.

    Raises:
        CommError: on every rank, where a node has less.
    """
    n_ranks = communicator.node_n_ranks
    fault = shortage(2 * n_bytes * n_ranks, f"messages of {n_bytes} bytes, two a rank on {n_ranks} rank(s)")
    for each in filter(None, communicator.allgather_objects(fault)):
        raise CommError(f"-m: {each}", everywhere=True)
