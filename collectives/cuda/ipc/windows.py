"""Device memory that all ranks of a node have mapped, through CUDA IPC handles exchanged once per buffer."""

from __future__ import annotations

import uuid
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.cupy_types import DeviceArray
from scaffe.collectives.cuda.kernels import GatherRanks, kernels
from scaffe.collectives.cuda.messages.staging import DEVICE_TO_HOST, HOST_TO_DEVICE
from scaffe.collectives.errors import CommError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


PROCESS = uuid.uuid4().hex
"""Names this process: memory is opened by handle in other processes only, and two containers may share a pid."""
GRAIN_BYTES = 2 << 20
"""Windows are whole blocks of the driver's: sharing a part of one would share what else lies in it."""


@dataclass(frozen=True)
class WindowSlice:
    """Where an array lies among the shared windows.

    Attributes:
        serial: the window's number, the same on all ranks.
        offset: bytes from the window's start to the array.
        bases: the address in this process at which each rank's window starts.
    """

    serial: int
    offset: int
    bases: Sequence[int]


@dataclass
class _Window:
    serial: int
    n_bytes: int
    addresses: list[int]
    opened: list[int]


class _Owner:
    """Lives as long as an array of the window does."""


class DeviceWindows:
    """The windows of one node's ranks, looked up by address so that any slice of a buffer can take part.

    A window whose arrays are gone on all ranks is freed at the next `allocate`: memory may be freed only when every
    rank has closed it, and an allocation is the one call that all ranks are known to make together.
    """

    def __init__(self, node_comm: Intracomm, synchronize: Callable[[], None], name: str) -> None:
        """``synchronize``: returns when none of this rank's collectives has work left on the device."""
        self._comm, self._synchronize, self._name = node_comm, synchronize, name
        self._runtime = device.load().cuda.runtime
        self._number = device.load().cuda.Device().id
        self._windows: dict[int, _Window] = {}
        self._bases: list[int] = []
        self._retired: dict[int, _Window] = {}
        self._serial = 0

    def allocate(self, n_elems: int, dtype: Any) -> DeviceArray:
        """Allocates a buffer in a new window; all ranks of the node call it with the same length. Returns a CuPy array
        of zeros, shape (n_elems,). Raises CommError on every rank, when one cannot allocate or share the memory."""
        n_bytes = n_elems * np.dtype(dtype).itemsize
        device.make_current(self._number)
        self._give_back()
        window = self._open(n_bytes)
        base = window.addresses[self._comm.rank]
        self._windows[base] = window
        self._bases = sorted(self._windows)
        return self._array(base, n_elems, dtype)

    def locate(self, array: DeviceArray) -> WindowSlice:
        """As `find`. Raises CommError where the array does not lie in a window."""
        found = self.find(array)
        if found is None:
            raise CommError(f"an array of {array.nbytes} bytes does not lie in a device window")
        return found

    def find(self, array: DeviceArray) -> WindowSlice | None:
        """Looks a CuPy array up; None where it does not lie wholly inside one window, or is empty."""
        if array.nbytes == 0:
            return None
        address, bases = array.data.ptr, self._bases
        index = bisect_right(bases, address) - 1
        window = self._windows.get(bases[index]) if index >= 0 else None
        if window is None or address + array.nbytes > bases[index] + window.n_bytes:
            return None
        return WindowSlice(window.serial, address - bases[index], window.addresses)

    def _array(self, base: int, n_elems: int, dtype: Any) -> DeviceArray:
        cupy, owner = device.load(), _Owner()
        memory = cupy.cuda.UnownedMemory(base, max(n_elems * np.dtype(dtype).itemsize, 1), owner, self._number)
        weakref.finalize(owner, self._retire, base).atexit = False
        array: DeviceArray = cupy.ndarray((n_elems,), dtype, cupy.cuda.MemoryPointer(memory, 0))
        array.fill(0)
        cupy.cuda.get_current_stream().synchronize()  # whoever uses the array first, on whatever stream, finds zeros
        return array

    def _retire(self, base: int) -> None:
        """Runs in the thread that drops the last array: ``_bases`` keeps the address until the next window is made."""
        window = self._windows.pop(base)
        self._retired[window.serial] = window  # collected by the next allocation

    def _give_back(self) -> None:
        """Frees the windows that no rank uses any more: every rank closes what it opened, then each frees its own."""
        gone = set.intersection(*map(set, self._comm.allgather(list(self._retired))))
        if not gone:
            return
        self._synchronize()
        windows = [self._retired.pop(serial) for serial in sorted(gone)]
        for address in (address for window in windows for address in window.opened):
            self._runtime.ipcCloseMemHandle(address)
        self._comm.Barrier()
        for window in windows:
            self._runtime.free(window.addresses[self._comm.rank])

    def _open(self, n_bytes: int) -> _Window:
        """A new window: every rank allocates its own memory and opens the others'. Raises CommError on all or none."""
        pointer, handle, fault = self._create(max(-(-n_bytes // GRAIN_BYTES), 1) * GRAIN_BYTES)
        offers = self._comm.allgather((PROCESS, pointer, handle, fault))
        fault = next((text for *_, text in offers if text), "")
        addresses: list[int] = []
        opened: list[int] = []
        try:
            for process, address, its_handle, _ in [] if fault else offers:
                if process != PROCESS:
                    address = self._runtime.ipcOpenMemHandle(its_handle)
                    opened.append(address)
                addresses.append(address)
        except Exception as error:  # CuPy's CUDARuntimeError: not known by name without CuPy
            fault = f"{self._name} cannot open the device memory of the node's rank {len(addresses)}: {error}"
        faults = [text for text in self._comm.allgather(fault) if text]
        if faults:
            self._undo(pointer, opened)
            raise CommError(f"alloc: {faults[0]}", everywhere=True)
        self._serial += 1
        return _Window(self._serial, n_bytes, addresses, opened)

    def _create(self, n_bytes: int) -> tuple[int, bytes, str]:
        """New memory, its handle and no fault; or what is wrong."""
        pointer = 0
        try:
            pointer = self._malloc(n_bytes)
            return pointer, self._runtime.ipcGetMemHandle(pointer), ""
        except Exception as error:  # as above
            what = "cannot share" if pointer else "cannot have"
            return pointer, b"", f"{self._name} {what} {n_bytes} bytes of device memory: {error}"

    def _malloc(self, n_bytes: int) -> int:
        """From CUDA itself: parts of CuPy's pool cannot be shared alone. The pool frees what it can spare first."""
        try:
            return self._runtime.malloc(n_bytes)
        except Exception:  # as above
            device.load().get_default_memory_pool().free_all_blocks()
            return self._runtime.malloc(n_bytes)

    def _undo(self, pointer: int, opened: list[int]) -> None:
        for address in opened:
            self._runtime.ipcCloseMemHandle(address)
        self._comm.Barrier()
        if pointer:
            self._runtime.free(pointer)


PART_ELEMS = 67
"""What one rank's kernel sums: whole packs of 16 bytes, and a rest."""
DTYPE = np.dtype(np.float32)


def prove(windows: DeviceWindows, node_comm: Intracomm, name: str) -> None:
    """Each rank reads all ranks' numbers, then sums a part of all ranks' windows into all of them.

    Args:
        windows: of the node's ranks, all of which call it.

    Raises:
        CommError: on every rank, where one cannot share, read or write a window or finds other numbers there.
    """
    n_ranks, rank = node_comm.size, node_comm.rank
    own = windows.allocate(n_ranks * PART_ELEMS, DTYPE)
    bases = windows.locate(own).bases
    values, runtime = np.full(own.size, rank + 1, DTYPE), device.load().cuda.runtime
    runtime.memcpy(own.data.ptr, values.ctypes.data, values.nbytes, HOST_TO_DEVICE)
    runtime.streamSynchronize(0)  # a copy from pageable memory may return before it has arrived
    node_comm.Barrier()
    _agree(node_comm, name, "finds other values in shared device memory than were written there",
           lambda: np.array_equal([_read(address, 1)[0] for address in bases], np.arange(1, n_ranks + 1)))
    _agree(node_comm, name, "cannot sum", lambda: _sum_part(bases, rank))
    _agree(node_comm, name, "finds other sums in shared device memory than the ranks' kernels should have written",
           lambda: bool((_read(own.data.ptr, own.size) == n_ranks * (n_ranks + 1) // 2).all()))


def _agree(node_comm: Intracomm, name: str, otherwise: str, is_right: Callable[[], bool]) -> None:
    """Raises CommError on all ranks where one fails or has a wrong result."""
    try:
        fault = "" if is_right() else f"{name} {otherwise}"
    except Exception as error:  # CuPy's CUDARuntimeError: not known by name without CuPy
        fault = f"{name} cannot use what handles open: {error}"
    faults = [text for text in node_comm.allgather(fault) if text]
    if faults:
        raise CommError(faults[0], everywhere=True)


def _sum_part(bases: Sequence[int], rank: int) -> bool:
    """This rank's part of all windows, summed into all: by the kernel that collectives use."""
    everyone = GatherRanks(0, len(bases), 0, len(bases), -1)
    kernels().gathering(bases, rank * PART_ELEMS * DTYPE.itemsize, PART_ELEMS, DTYPE, "sum", everyone)()
    device.load().cuda.get_current_stream().synchronize()
    return True


def _read(address: int, n_elems: int) -> np.ndarray:
    found = np.zeros(n_elems, DTYPE)
    device.load().cuda.runtime.memcpy(found.ctypes.data, address, found.nbytes, DEVICE_TO_HOST)
    return found
