"""The one door to CuPy: which arrays lie on a device, in which order its streams work, and the device's memory.

Arrays are known by `__cuda_array_interface__`, so CuPy's, PyTorch's and numba's all do. Streams and events may be any
library's: what counts is the handle, under the names that CuPy (`ptr`), PyTorch (`cuda_stream`, `cuda_event`) and
numba (`handle`) give it, or what `__cuda_stream__` tells.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.collectives.errors import CommError

INTERFACE = "__cuda_array_interface__"
HANDLES = ("cuda_stream", "cuda_event", "handle")
LEGACY_STREAM = 1
"""What `__cuda_array_interface__` calls the default stream, whose handle is 0."""
NOT_READY = 600
"""cudaErrorNotReady: work before an event is still under way."""


_found: list[ModuleType] = []


def load() -> ModuleType:
    """The module `cupy`. Raises CommError, in one line, where it or its GPU cannot be had."""
    if _found and sys.modules.get("cupy") is _found[0]:
        return _found[0]
    try:
        import cupy

        n_devices = cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        raise CommError(f"device buffers need CuPy, which cannot be imported: {_first_line(error)}") from None
    except Exception as error:  # CuPy raises its own CUDARuntimeError, which has no name before CuPy is there
        raise CommError(f"device buffers need a GPU, and CUDA finds none: {_first_line(error)}") from None
    if n_devices == 0:
        raise CommError("device buffers need a GPU, and CUDA finds none")
    _found[:] = [cupy]
    return cupy


def missing() -> str:
    """Why there is no device here, in one line; empty where there is one."""
    try:
        load()
    except CommError as error:
        return str(error)
    return ""


def load_nccl() -> ModuleType:
    """CuPy's module `nccl`. Raises CommError where NCCL cannot be loaded."""
    load()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy's warning of several lines is our one-line error below
            from cupy.cuda import nccl
    except Exception as error:  # what finds libraries for CuPy has errors of its own
        raise CommError(f"NCCL cannot be loaded: {_first_line(error)}") from None
    if not nccl.available:
        raise CommError("NCCL cannot be loaded: CuPy does not find libnccl (package nvidia-nccl-cu12 or -cu13)")
    return nccl


def is_on_device(array: Any) -> bool:
    """Whether `array` says of itself that it lies in a GPU's memory."""
    return hasattr(type(array), INTERFACE) or hasattr(array, INTERFACE)  # an array makes its interface when asked


def flat(array: Any) -> Any:
    """The same memory as a flat CuPy array. Raises CommError unless it is contiguous.

    CuPy's current stream follows the stream that another library's array names; CuPy itself would block the host.
    """
    own = array if isinstance(array, load().ndarray) else _adopted(array)
    if not own.flags.c_contiguous:
        raise CommError(f"expected a contiguous array, got shape {own.shape} with strides {own.strides}")
    return own if own.ndim == 1 else own.reshape(-1)


def card(number: int) -> str:
    """Where GPU `number` of this process sits in its machine; the same for all processes that share it."""
    return load().cuda.runtime.deviceGetPCIBusId(number)


def use_by_rank(node_rank: int) -> int:
    """Give the GPUs of a node out to its ranks in turn, and make this rank's the current one. Its number."""
    cupy = load()
    number = node_rank % cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(number).use()
    return number


_spare_events: dict[tuple[int, int], list[Any]] = {}
"""By CuPy's module and device: events of points that have ended, to be recorded again instead of making new ones."""


class Point:
    """A point in a stream's work, which other streams can be made to follow. It blocks no host thread."""

    def __init__(self, event: Any) -> None:
        """`event`: recorded already; CuPy's, PyTorch's or numba's."""
        self._runtime = load().cuda.runtime
        self.event, self._handle = event, handle(event)
        self._spare: list[Any] | None = None

    @classmethod
    def now(cls, stream: Any = None) -> Point:
        """The end of what has been queued on `stream` (default: CuPy's current one) so far."""
        cuda = load().cuda
        spare = _spare_events.setdefault((id(cuda), cuda.runtime.getDevice()), [])
        try:
            point = cls(spare.pop())
        except IndexError:
            point = cls(cuda.Event(disable_timing=True))
        point._spare = spare
        point.mark(cuda.get_current_stream() if stream is None else stream)
        return point

    def hold_and_end(self, stream: Any = None) -> None:
        """`hold`, for the last time: a point made by `now` leaves its event to another one."""
        self.hold(stream)
        if self._spare is not None:
            self._spare.append(self.event)  # who waits for it holds what was recorded, not the event
            self._spare = None

    @classmethod
    def of(cls, after: Any) -> Point:
        """`after` as a point: a point, an event, or None for the end of what is queued on the current stream."""
        if after is None:
            return cls.now()
        return after if isinstance(after, cls) else cls(after)

    def mark(self, stream: Any) -> None:
        """Become the end of what has been queued on `stream` so far (for points made with an event of ours)."""
        self._runtime.eventRecord(self._handle, handle(stream))

    def hold(self, stream: Any = None) -> None:
        """What is queued on `stream` (default: CuPy's current one) from now on runs after this point."""
        target = load().cuda.get_current_stream() if stream is None else stream
        self._runtime.streamWaitEvent(handle(target), self._handle)

    def is_reached(self) -> bool:
        """Whether the device has come here. Raises CommError where work before it has failed."""
        status = self._runtime.eventQuery(self._handle)
        if status not in (0, NOT_READY):
            raise CommError(f"work on the device has failed: CUDA error {status}")
        return status == 0


def handle(thing: Any) -> int:
    """The CUDA handle of a stream or an event, or of a plain integer. Raises CommError on anything else."""
    found = getattr(thing, "ptr", thing)
    if isinstance(found, int):
        return found
    if hasattr(thing, "__cuda_stream__"):
        return thing.__cuda_stream__()[1]
    found = next((getattr(thing, name) for name in HANDLES if hasattr(thing, name)), None)
    if found is None:
        raise CommError(f"expected a CUDA stream or event, got {type(thing).__name__}")
    return int(getattr(found, "value", found) or 0)  # numba's are ctypes, whose 0 is None


def _adopted(array: Any) -> Any:
    interface = array.__cuda_array_interface__
    cuda, dtype, shape = load().cuda, np.dtype(interface["typestr"]), tuple(interface["shape"])
    address, strides = interface["data"][0], interface.get("strides")
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    memory = cuda.UnownedMemory(address, n_bytes, array, cuda.Device().id if address == 0 else -1)
    if (stream := interface.get("stream")) is not None:
        Point.now(0 if stream == LEGACY_STREAM else stream).hold()
    return load().ndarray(shape, dtype, cuda.MemoryPointer(memory, 0), strides=strides)


def pinned(n_bytes: int) -> np.ndarray:
    """Host memory that the current device reads and writes by itself, as bytes."""
    memory = load().cuda.alloc_pinned_memory(max(n_bytes, 1))
    return np.frombuffer(memory, np.uint8, n_bytes)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
