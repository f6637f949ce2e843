"""The one door to CuPy: which arrays lie on a device, in which order its streams work, and the device's memory.

Arrays are recognised by `__cuda_array_interface__`, so CuPy's, PyTorch's and numba's all do. Streams and events may be
any library's: only the handle counts, under the names that CuPy (`ptr`), PyTorch (`cuda_stream`, `cuda_event`) and
numba (`handle`) give it, or as `__cuda_stream__` returns it.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from scaffe.collectives.cuda.cupy_types import CudaEvent, CudaStream, CuPy, DeviceArray
from scaffe.collectives.errors import CommError

INTERFACE = "__cuda_array_interface__"
HANDLES = ("cuda_stream", "cuda_event", "handle")
LEGACY_STREAM = 1
"""What `__cuda_array_interface__` calls the default stream, whose handle is 0."""
NOT_READY = 600
"""cudaErrorNotReady: work before an event is still under way."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5e-6, 50e-6
"""Between two queries of an event not yet reached: CuPy holds the interpreter's lock while CUDA answers, which keeps
the thread that queues kernels from going on. Each pause is twice the one before."""


_found: list[CuPy] = []


def load() -> CuPy:
    """Imports CuPy. Returns the module `cupy`. Raises CommError in one line, where CuPy cannot be imported or finds no
    GPU."""
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
    return _found[0]


def missing() -> str:
    """Says in one line why no device can be used here; empty where one can."""
    try:
        load()
    except CommError as error:
        return str(error)
    return ""


def load_nccl() -> Any:
    """Imports CuPy's binding of NCCL. Returns the module `cupy.cuda.nccl`. Raises CommError in one line, where NCCL
    cannot be loaded."""
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
    """Whether `array` has `__cuda_array_interface__`, that is, lies in a GPU's memory."""
    return hasattr(type(array), INTERFACE) or hasattr(array, INTERFACE)  # an array makes its interface when asked


def flat(array: Any) -> DeviceArray:
    """Views a device array as a flat CuPy array.

    CuPy's current stream is made to follow the stream that another library's array names; CuPy itself would block the
    host.

    Args:
        array: contiguous, any shape and dtype, with `__cuda_array_interface__`.

    Returns:
        The same memory, shape (array.size,).

    Raises:
        CommError: if the array is not contiguous.
    """
    own: DeviceArray = array if isinstance(array, load().ndarray) else _adopted(array)
    if not own.flags.c_contiguous:
        raise CommError(f"expected a contiguous array, got shape {own.shape} with strides {own.strides}")
    return own if own.ndim == 1 else own.reshape(-1)


def card(number: int) -> str:
    """Returns the PCI bus id of this process's GPU `number`; the same string in all processes that share the GPU."""
    return load().cuda.runtime.deviceGetPCIBusId(number)


_thread = threading.local()


def make_current(number: int) -> None:
    """Makes a GPU the current device of this thread, from now on.

    A thread begins with GPU 0 and without a context. A CUDA call there would make one on GPU 0, which takes half a GB
    of another rank's card; and an MPI library moves device memory in any thread that calls it, for which it needs one.
    The former device is not restored: since CUDA 12 that would make a context there too.
    """
    cuda = load().cuda
    if getattr(_thread, "number", None) != number or cuda.runtime.getDevice() != number:
        cuda.Device(number).use()
        _thread.number = number


def current() -> int:
    """Returns the number of this thread's current GPU."""
    return load().cuda.runtime.getDevice()


def use_by_rank(node_rank: int) -> int:
    """Makes one of the node's GPUs the current device, round-robin over the node's ranks. Returns the GPU's number in
    this process."""
    cupy = load()
    number = node_rank % cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(number).use()
    return number


@contextmanager
def on_stream(stream: CudaStream) -> Iterator[None]:
    """Makes a stream the thread's current one, and then again the one from before.

    CuPy's own `with stream` ends with the stream of the `with` around it: one that `use()` has chosen is forgotten.
    """
    before = load().cuda.get_current_stream()
    stream.use()
    try:
        yield
    finally:
        before.use()


_spare_events: dict[tuple[int, int], list[CudaEvent]] = {}
"""By CuPy's module and device: events of points that are over, recorded again instead of creating new ones."""


class Point:
    """A recorded CUDA event: a point in a stream's work that other streams can be made to follow.

    No method blocks the host.
    """

    def __init__(self, event: Any) -> None:
        """``event``: already recorded; CuPy's, PyTorch's or numba's, or a plain handle."""
        self._runtime = load().cuda.runtime
        self.event, self._handle = event, handle(event)
        self._spare: list[CudaEvent] | None = None
        self._pause, self._look_again = FIRST_PAUSE_SECONDS, 0.0

    @classmethod
    def now(cls, stream: Any = None) -> Point:
        """Records the end of what has been queued on `stream` (default: CuPy's current one) so far."""
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
        """Like `hold`, for the last time: a point made by `now` gives its event back to be recorded again."""
        self.hold(stream)
        if self._spare is not None:
            self._spare.append(self.event)  # a stream that waits for it holds what was recorded, not the event
            self._spare = None

    @classmethod
    def of(cls, after: Any) -> Point:
        """Makes a point of a point, of an event, or of None: the end of what the current stream has been given."""
        if after is None:
            return cls.now()
        return after if isinstance(after, cls) else cls(after)

    def mark(self, stream: Any) -> None:
        """Records the event again, at the end of what has been queued on `stream` so far."""
        self._runtime.eventRecord(self._handle, handle(stream))
        self._pause, self._look_again = FIRST_PAUSE_SECONDS, 0.0

    def hold(self, stream: Any = None) -> None:
        """Makes what is queued on `stream` (default: CuPy's current one) from now on run after this point."""
        target = load().cuda.get_current_stream() if stream is None else stream
        self._runtime.streamWaitEvent(handle(target), self._handle)

    def is_reached(self) -> bool:
        """Whether the device has reached this point. CUDA is not asked at every call, so it may be known late. Raises
        CommError if work before it has failed on the device."""
        if time.monotonic() < self._look_again:
            return False
        status = self._runtime.eventQuery(self._handle)
        if status not in (0, NOT_READY):
            raise CommError(f"work on the device has failed: CUDA error {status}")
        if status == NOT_READY:
            self._look_again, self._pause = time.monotonic() + self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return status == 0


def handle(thing: Any) -> int:
    """Finds the CUDA handle of a stream or an event of any library. Returns the handle; 0 is the default stream. Raises
    CommError if `thing` is neither."""
    found = getattr(thing, "ptr", thing)
    if isinstance(found, int):
        return found
    if hasattr(thing, "__cuda_stream__"):
        return int(thing.__cuda_stream__()[1])
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
    make_current(memory.device_id)
    if (stream := interface.get("stream")) is not None:
        Point.now(0 if stream == LEGACY_STREAM else stream).hold()
    return load().ndarray(shape, dtype, cuda.MemoryPointer(memory, 0), strides=strides)


def zeros(n_elems: int, dtype: np.dtype[Any]) -> DeviceArray:
    """Allocates zeros that a stream which does not wait for the current one finds, too: the host waits for them.
    Returns a CuPy array, shape (n_elems,), on the current device."""
    made = load().zeros(n_elems, dtype)
    load().cuda.get_current_stream().synchronize()
    return made


def pinned(n_bytes: int) -> np.ndarray:
    """Allocates page-locked host memory, which the current device can read and write itself. ``n_bytes``: length, 0 or
    more. Returns uint8, shape (n_bytes,), uninitialised."""
    memory = load().cuda.alloc_pinned_memory(max(n_bytes, 1))
    return np.frombuffer(memory, np.uint8, n_bytes)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
