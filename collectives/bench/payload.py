"""What benchmarks send, numbers that differ for every rank and element and whose sums are exact, and the buffers it
lies in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.cuda import device
from scaffe.collectives.errors import CommError
from scaffe.collectives.transport.host_memory import shortage
from scaffe.jit import compiled


class HostBuffers:
    """NumPy arrays."""

    memory = "host"
    _arrays: Any = np

    def window(self, communicator: Communicator, n_elems: int, dtype: str) -> Any:
        """Allocates a buffer that the node's ranks share (Communicator.alloc): zeros, (n_elems,). All ranks call it."""
        return communicator.alloc(n_elems, dtype, self.memory)

    def private(self, n_elems: int, dtype: str) -> Any:
        return self._arrays.zeros(n_elems, dtype)

    def put(self, part: Any, values: np.ndarray) -> None:
        """Writes values (int64, exact in the buffer's dtype) to a part of a buffer of the same length."""
        part[:] = values

    def get(self, part: Any) -> np.ndarray:
        values: np.ndarray = part
        return values

    def synchronize(self) -> None:
        """Returns when the device has done what calls have queued; host calls are done already."""

    def about(self, communicator: Communicator) -> dict[str, str]:
        """Says for a report how such buffers travel. All ranks call it."""
        return {}


class DeviceBuffers(HostBuffers):
    """CuPy arrays on this rank's GPU; the ranks of a node take its GPUs round-robin."""

    memory = "device"

    def __init__(self, communicator: Communicator) -> None:
        """Makes this rank's GPU the current one. Raises CommError on every rank, where one has no GPU."""
        missing = next(filter(None, communicator.allgather_objects(device.missing())), "")
        if missing:
            raise CommError(f"-memory device: {missing}", everywhere=True)
        device.use_by_rank(communicator.node_rank)
        self._arrays = device.load()

    def put(self, part: Any, values: np.ndarray) -> None:
        part[...] = self._arrays.asarray(values.astype(part.dtype))

    def get(self, part: Any) -> np.ndarray:
        values: np.ndarray = part.get()
        return values

    def synchronize(self) -> None:
        """See HostBuffers: the collective's result follows on the current stream."""
        self._arrays.cuda.get_current_stream().synchronize()

    def about(self, communicator: Communicator) -> dict[str, str]:
        return {"transport": communicator.describe_device()}


def of(memory: str, communicator: Communicator) -> HostBuffers:
    """Makes the buffers for a kind of memory. ``memory``: `host`, `shared` or `device`. Raises CommError as
    DeviceBuffers does."""
    return DeviceBuffers(communicator) if memory == "device" else HostBuffers()


def check_room(communicator: Communicator, n_bytes: int) -> None:
    """Asks each node for the memory of its ranks' two buffers, before anything is measured. All ranks call it.
    ``n_bytes``: of the longest message. Raises CommError on every rank, where a node has less."""
    n_ranks = communicator.node_n_ranks
    fault = shortage(2 * n_bytes * n_ranks, f"messages of {n_bytes} bytes, two a rank on {n_ranks} rank(s)")
    for each in filter(None, communicator.allgather_objects(fault)):
        raise CommError(f"-m: {each}", everywhere=True)


EXACT_BITS = {"float16": 11, "float32": 24, "float64": 52, "int32": 31, "int64": 62}
BLOCK_ELEMS = 1 << 18


@compiled
def _values(out: np.ndarray, first: int, rank: int, mask: Any) -> None:
    """out[i] = a hash of rank and first + i (splitmix64's finisher), and `mask` (uint64). out: int64."""
    for i in range(out.size):
        x = np.uint64(first + i) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(rank + 1) * np.uint64(0xD1B54A32D192ED03)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = np.int64((x ^ (x >> np.uint64(31))) & mask)


class Payload:
    """Values of one dtype for `n_ranks` ranks."""

    def __init__(self, dtype: str, n_ranks: int, buffers: HostBuffers | None = None) -> None:
        """Chooses k so small that sums over all ranks of integers below 2**k are exact in `dtype`."""
        self._buffers = HostBuffers() if buffers is None else buffers
        self.dtype, self.n_ranks = np.dtype(dtype), n_ranks
        self._mask = np.uint64((1 << (EXACT_BITS[dtype] - n_ranks.bit_length())) - 1)

    def values(self, rank: int, start: int, stop: int) -> np.ndarray:
        out = np.empty(stop - start, np.int64)
        _values(out, start, rank, self._mask)
        return out

    def sums(self, start: int, stop: int) -> np.ndarray:
        """Returns elements [start, stop) summed over ranks, int64."""
        total = self.values(0, start, stop)
        for rank in range(1, self.n_ranks):
            total += self.values(rank, start, stop)
        return total

    def fill(self, array: Any, rank: int) -> None:
        for start, stop in blocks(0, array.size):
            self._buffers.put(array[start:stop], self.values(rank, start, stop))

    def n_wrong(self, array: Any, start: int, stop: int, source: int | None) -> int:
        """Counts wrong elements. ``source``: the rank whose values they should be; None: the sum over ranks."""
        wrong = 0
        for first, last in blocks(start, stop):
            right = self.sums(first, last) if source is None else self.values(source, first, last)
            wrong += int(np.count_nonzero(self._buffers.get(array[first:last]) != right.astype(self.dtype)))
        return wrong


def blocks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yields [start, stop) in intervals that stay in cache."""
    for first in range(start, stop, BLOCK_ELEMS):
        yield first, min(first + BLOCK_ELEMS, stop)
