"""The only access of this package and the trainer to CuPy: the module, its devices, streams and pinned memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, update_wrapper
from math import prod
from types import ModuleType
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from scaffe import threads
from scaffe.errors import LayerError
from scaffe.layers.kernels import driver

INSTALL = "pip install 'scaffe[cuda12]' or 'scaffe[cuda13]', as the driver has it"
LANES = 128  # multiply-adds of a multiprocessor in each clock
P = ParamSpec("P")
T = TypeVar("T")
_checked: list[ModuleType] = []  # the module that has a device: kernels ask for it at every launch


def load() -> ModuleType:
    """The module ``cupy``. Raises LayerError, in one line, if the package, the driver or a device is missing."""
    try:
        import cupy
    except ImportError as error:
        raise LayerError(f"a GPU needs CuPy, which cannot be imported ({first_line(error)}): {INSTALL}") from None
    found: ModuleType = cupy
    if found in _checked:
        return found
    try:
        n_devices = found.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy's own classes have no name where CuPy is not there
        raise LayerError(f"CUDA finds no device: {first_line(error)}") from None
    if n_devices < 1:
        raise LayerError("CUDA finds no device")
    try:
        # Ahead of cuDNN, which loads it too: CUDA 13's wheel finds its second library only where CuPy has loaded that.
        found.cuda.nvrtc.getVersion()
    except Exception as error:
        raise LayerError(f"CUDA's run-time compiler cannot be loaded: {first_line(error)}: {INSTALL}") from None
    _checked[:] = [found]
    return found


def missing() -> str:
    """Why no GPU can be used, in one line; empty if a GPU can be used."""
    try:
        load()
    except LayerError as error:
        return str(error)
    return ""


def count() -> int:
    """The number of devices; 0 if none can be used."""
    return 0 if missing() else load().cuda.runtime.getDeviceCount()


def use(number: int) -> None:
    """Make a device the current one of this thread and of our threads that start later. Raises LayerError if there is
    none of that number."""
    cupy = load()
    n_devices = cupy.cuda.runtime.getDeviceCount()
    if not 0 <= number < n_devices:
        raise LayerError(f"there is no GPU {number}: CUDA finds {n_devices}, counted from 0")
    cupy.cuda.Device(number).use()
    threads.begin_with(cupy.cuda.Device(number).use)


def describe(number: int = 0) -> dict[str, str]:
    """A device's properties as text, by name, in the order in which ``device_query`` prints them."""
    runtime = load().cuda.runtime
    p = runtime.getDeviceProperties(number)
    bandwidth = 2 * p["memoryClockRate"] * 1e3 * p["memoryBusWidth"] / 8 / 1e9
    return {
        "Device id": str(number),
        "Name": p["name"].decode(),
        "Compute capability": f"{p['major']}.{p['minor']}",
        "Total global memory": f"{p['totalGlobalMem']:,} bytes",
        "Memory bandwidth (by clock and width)": f"{bandwidth:,.0f} GB/s",
        "Multiprocessors": str(p["multiProcessorCount"]),
        "Clock rate": f"{p['clockRate'] / 1e6:.2f} GHz",
        "L2 cache": f"{p['l2CacheSize']:,} bytes",
        "Shared memory per block": f"{p['sharedMemPerBlock']:,} bytes",
        "Registers per block": f"{p['regsPerBlock']:,}",
        "Warp size": str(p["warpSize"]),
        "Maximum threads per block": f"{p['maxThreadsPerBlock']:,}",
        "Maximum dimension of block": " x ".join(f"{n:,}" for n in p["maxThreadsDim"]),
        "Maximum dimension of grid": " x ".join(f"{n:,}" for n in p["maxGridSize"]),
        "CUDA driver and runtime": f"{_version(runtime.driverGetVersion())}, {_version(runtime.runtimeGetVersion())}",
    }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def current() -> int:
    """The number of this thread's current device."""
    number: int = load().cuda.runtime.getDevice()
    return number


def bus_id(number: int) -> str:
    """A device's place on the PCI bus, "0000:3b:00.0"; asking makes no context."""
    found: str = load().cuda.runtime.deviceGetPCIBusId(number)
    return found


class PerDevice(Generic[P, T]):
    """A cache of a function's results, by arguments and current device."""

    def __init__(self, make: Callable[P, T]) -> None:
        self._kept: Any = cache(lambda _number, *args, **kwargs: make(*args, **kwargs))
        self.cache_clear = self._kept.cache_clear
        update_wrapper(self, make)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = self._kept(current(), *args, **kwargs)
        return found


def stream() -> Any:
    """A new stream that does not synchronise with the default stream."""
    return load().cuda.Stream(non_blocking=True)


@PerDevice
def compute_stream() -> Any:
    """The stream on which nets compute: one for each device, so that nets see one another's results."""
    return stream()


def current_stream() -> Any:
    """The stream that this thread queues its work on."""
    return load().cuda.get_current_stream()


def record_at_launch(event: Any, stream: Any) -> None:
    """Have a recording that is being made on a stream record an event each time it is launched (CUDA's external event
    record nodes). Raises LayerError if the driver cannot."""
    driver.call("cuEventRecordWithFlags", event.ptr, stream.ptr, driver.EXTERNAL)


def array_at(address: int, n_bytes: int, owner: Any) -> Any:
    """Memory of the current device that something else keeps, as an array of bytes, uint8 (n_bytes,). ``owner``: is
    kept as long as the array."""
    cuda = load().cuda
    memory = cuda.UnownedMemory(address, n_bytes, owner, current())
    return load().ndarray((n_bytes,), np.uint8, cuda.MemoryPointer(memory, 0))


def copy_to_pinned(array: Any, place: np.ndarray, stream: Any) -> None:
    """Queue a copy of an array of bytes, uint8 (n_bytes,), to page-locked memory on a stream. Both must last until it
    is done."""
    array.data.copy_to_host_async(place.ctypes.data, array.nbytes, stream)


def copy_from_pinned(array: Any, place: np.ndarray, stream: Any) -> None:
    """Queue a copy from page-locked memory to the device; arguments as for ``copy_to_pinned``."""
    array.data.copy_from_host_async(place.ctypes.data, array.nbytes, stream)


def copy_from_host(array: Any, values: np.ndarray) -> None:
    """Copy host memory to an array on the device, and wait for it: both flat, of equal length and type."""
    array.set(values)
    current_stream().synchronize()


def free_bytes() -> int:
    """Free bytes of the current device's memory, including those that this process's pool keeps."""
    cupy = load()
    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free + cupy.get_default_memory_pool().free_bytes())


def give_back() -> None:
    """Give memory that this process has freed, but keeps for its next arrays, back to the current device."""
    load().get_default_memory_pool().free_all_blocks()


def speeds() -> tuple[float, float]:
    """The current device's peak rates by its clocks: float32 multiply-adds and bytes of memory traffic a second."""
    p = load().cuda.runtime.getDeviceProperties(current())
    lanes = p["multiProcessorCount"] * LANES
    return lanes * p["clockRate"] * 1e3, 2 * p["memoryClockRate"] * 1e3 * p["memoryBusWidth"] / 8


def place() -> Callable[[], None]:
    """A function that makes the device that is current now, and its compute stream, current on the calling thread."""
    number, found = current(), compute_stream()

    def go_there() -> None:
        if current() != number:
            load().cuda.Device(number).use()
        found.use()
    return go_there


def pinned(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array in page-locked host memory, which a device can copy while the host goes on."""
    n_elems = prod(shape) if isinstance(shape, tuple) else shape
    memory = load().cuda.alloc_pinned_memory(max(n_elems * np.dtype(dtype).itemsize, 1))
    return np.frombuffer(memory, dtype, n_elems).reshape(shape)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
