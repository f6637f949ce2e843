"""What this package uses of CuPy, as types: CuPy itself has none, and most machines that read this code lack it.

A module that has all of this can stand in CuPy's place; the tests' pretend one is checked against these protocols.
Names are CuPy's; `ptr`, addresses and handles are plain integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class CudaPointer(Protocol):
    """An address in device memory that keeps its allocation alive."""

    ptr: int


class CudaDevice(Protocol):
    """One GPU of this process; as a context, the thread's current one."""

    id: int

    def use(self) -> object:
        """Makes it the thread's current device."""

    def __enter__(self) -> object: ...

    def __exit__(self, *error: Any) -> object: ...


class CudaStream(Protocol):
    """A queue of device work; as a context, the thread's current one."""

    ptr: int

    def synchronize(self) -> object:
        """Blocks the host until the stream is empty."""

    def use(self) -> object:
        """Makes it the thread's current stream."""


class CudaEvent(Protocol):
    """A CUDA event."""

    ptr: int

    def record(self, stream: CudaStream) -> object:
        """Marks the end of what `stream` has been given so far."""


class Flags(Protocol):
    """How an array lies in memory."""

    c_contiguous: bool


class DeviceArray(Protocol):
    """An array in device memory (`cupy.ndarray`)."""

    size: int
    nbytes: int
    itemsize: int
    ndim: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    data: CudaPointer
    device: CudaDevice
    flags: Flags

    def reshape(self, *shape: int) -> DeviceArray:
        """The same memory in another shape."""

    def view(self, dtype: Any) -> DeviceArray:
        """The same memory as elements of another dtype."""

    def fill(self, value: Any) -> object:
        """Writes one value to all elements, on the current stream."""

    def get(self, stream: Any = None, *, out: Any = None, blocking: bool = True) -> np.ndarray:
        """Copies to host memory."""

    def set(self, arr: np.ndarray, stream: Any = None) -> object:
        """Copies from host memory."""

    def __getitem__(self, part: Any) -> DeviceArray: ...

    def __setitem__(self, part: Any, values: Any) -> None: ...


class Runtime(Protocol):
    """CUDA's runtime calls (`cupy.cuda.runtime`). They raise CuPy's CUDARuntimeError."""

    getDeviceCount: Callable[[], int]
    getDevice: Callable[[], int]
    deviceGetPCIBusId: Callable[[int], str]
    deviceGetByPCIBusId: Callable[[str], int]
    deviceCanAccessPeer: Callable[[int, int], int]
    deviceGetAttribute: Callable[[int, int], int]
    eventRecord: Callable[[int, int], object]
    eventQuery: Callable[[int], int]
    streamWaitEvent: Callable[[int, int], object]
    streamSynchronize: Callable[[int], object]
    malloc: Callable[[int], int]
    free: Callable[[int], object]
    memcpy: Callable[[int, int, int, int], object]
    memcpyAsync: Callable[[int, int, int, int, int], object]
    ipcGetMemHandle: Callable[[int], bytes]
    ipcOpenMemHandle: Callable[[bytes], int]
    ipcCloseMemHandle: Callable[[int], object]
    ipcGetEventHandle: Callable[[int], bytes]
    ipcOpenEventHandle: Callable[[bytes], int]


class Cuda(Protocol):
    """The module `cupy.cuda`."""

    runtime: Runtime
    Device: Callable[..., CudaDevice]
    Stream: Callable[..., CudaStream]
    Event: Callable[..., CudaEvent]
    MemoryPointer: Callable[[Any, int], CudaPointer]
    UnownedMemory: Callable[[int, int, object, int], Any]
    get_current_stream: Callable[[], CudaStream]
    alloc_pinned_memory: Callable[[int], Any]


class CuPy(Protocol):
    """The module `cupy`."""

    cuda: Cuda
    ndarray: type[Any]
    zeros: Callable[..., DeviceArray]
    empty: Callable[..., DeviceArray]
    asarray: Callable[..., DeviceArray]
    RawModule: Callable[..., Any]
    get_default_memory_pool: Callable[[], Any]
