"""cupy.cuda: the device, its runtime calls, memory pools."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

from tests.pretend import contexts, ipc, memory, pool, queue
from tests.pretend.queue import CudaError, enqueue, host_waits, stream_at

TOTAL_BYTES = 16 << 30
PROPERTIES = {"name": b"Pretend CUDA device", "totalGlobalMem": TOTAL_BYTES, "multiProcessorCount": 4, "major": 9,
              "minor": 0, "warpSize": 32, "maxThreadsPerBlock": 1024, "sharedMemPerBlock": 48 << 10,
              "sharedMemPerBlockOptin": 227 << 10, "regsPerBlock": 65536, "totalConstMem": 65536,
              "clockRate": 1_980_000, "memoryClockRate": 3_201_000, "memoryBusWidth": 6144, "l2CacheSize": 60 << 20,
              "maxThreadsDim": (1024, 1024, 64), "maxGridSize": (2**31 - 1, 65535, 65535), "unifiedAddressing": 1,
              "pciBusID": 1, "pciDeviceID": 0, "pciDomainID": 0, "uuid": bytes(range(16)), "ECCEnabled": 1,
              "integrated": 0, "concurrentKernels": 1, "asyncEngineCount": 3, "canMapHostMemory": 1}


class Device:
    """A device of this process: the current one unless its number is given. All are one memory."""

    def __init__(self, device: int | None = None) -> None:
        self.id = contexts.current_device() if device is None else int(device)
        self._before: list[int] = []

    def use(self) -> Device:
        """Be this thread's current device."""
        setDevice(self.id)
        return self

    def synchronize(self) -> None:
        """The host waits for all streams."""
        deviceSynchronize()

    def __enter__(self) -> Device:
        self._before.append(contexts.current_device())
        return self if self.id == self._before[-1] else self.use()

    def __exit__(self, *_: object) -> None:
        setDevice(self._before.pop())

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    compute_capability = "90"
    cublas_handle = 1
    mem_info = property(lambda self: memGetInfo())
    attributes = property(lambda self: {"MultiProcessorCount": PROPERTIES["multiProcessorCount"]})


class Settings:
    """How many devices there seem to be; all are one memory."""

    n_devices = 1


def getDeviceCount() -> int:
    if Settings.n_devices == 0:
        raise CudaError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return Settings.n_devices


def getDevice() -> int:
    return contexts.current_device()


def _must_be_there(device: int) -> None:
    if not 0 <= device < Settings.n_devices:
        raise CudaError("cudaErrorInvalidDevice: invalid device ordinal")


def setDevice(device: int) -> None:
    _must_be_there(device)
    contexts.use_device(device)


def getDeviceProperties(device: int) -> dict[str, Any]:
    _must_be_there(device)
    return dict(PROPERTIES)


def memGetInfo() -> tuple[int, int]:
    return TOTAL_BYTES - memory.counters.used, TOTAL_BYTES


def deviceSynchronize() -> None:
    queue.settings.waits.append("device")
    queue.drain_all()


def streamSynchronize(stream: int) -> None:
    stream_at(stream).synchronize()


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:
    stream_at(stream).wait_event(queue.event_at(event))


def eventRecord(event: int, stream: int) -> None:
    queue.event_at(event).record(stream_at(stream))


def eventSynchronize(event: int) -> None:
    queue.event_at(event).synchronize()


def eventQuery(event: int) -> int:
    return 0 if queue.event_at(event).query() else 600


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    on = stream_at(stream)
    enqueue(memory.host_reader(src, dst, size, on) if kind == 1 else lambda: ctypes.memmove(dst, src, size), on)


def memcpy(dst: int, src: int, size: int, kind: int) -> None:
    host_waits("memcpy", queue.Stream.null)
    ctypes.memmove(dst, src, size)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    enqueue(lambda: ctypes.memset(ptr, value, size), stream_at(stream))


def memset(ptr: int, value: int, size: int) -> None:
    enqueue(lambda: ctypes.memset(ptr, value, size), queue.Stream.null)


_allocated: dict[int, memory.Memory] = {}


def malloc(size: int) -> int:
    made = memory.Memory(size)
    _allocated[made.ptr] = made
    return made.ptr


def free(ptr: int) -> None:
    deviceSynchronize()
    _allocated.pop(ptr).block.check()


def ipcGetMemHandle(ptr: int) -> bytes:
    found = memory.allocation_at(ptr)
    if found is None:
        raise CudaError("cudaErrorInvalidValue: invalid argument: not an allocation's address")
    return memory.handle_of(found)


def ipcOpenMemHandle(handle: bytes, flags: int = 1) -> int:
    return memory.open_handle(handle)


def ipcCloseMemHandle(ptr: int) -> None:
    memory.close_handle(ptr)


def ipcGetEventHandle(event: int) -> bytes:
    return ipc.event_handle(queue.event_at(event))


def ipcOpenEventHandle(handle: bytes) -> int:
    return ipc.open_event(handle).ptr


class MemoryPool(pool.Pool):
    """CuPy's view of a pool."""

    def used_bytes(self) -> int:
        """Of arrays, of whatever pool."""
        return memory.counters.used

    def total_bytes(self) -> int:
        """The most that was in use."""
        return memory.counters.peak

    def free_bytes(self) -> int:
        """Of the most that was in use, what is not now."""
        return memory.counters.peak - memory.counters.used

    def free_all_blocks(self, stream: Any = None) -> None:
        """As CuPy's."""
        super().free_all_blocks(stream)
        memory.counters.peak = memory.counters.used

    def malloc(self, size: int) -> memory.MemoryPointer:
        """Of this pool."""
        return memory.malloc(size, self)


def runtime_module() -> ModuleType:
    """cupy.cuda.runtime."""
    module = ModuleType("cupy.cuda.runtime")
    names = ("getDeviceCount", "getDevice", "setDevice", "getDeviceProperties", "memGetInfo", "deviceSynchronize",
             "streamSynchronize", "streamWaitEvent", "eventRecord", "eventSynchronize", "eventQuery", "memcpyAsync",
             "memcpy", "memsetAsync", "memset", "malloc", "free", "ipcGetMemHandle", "ipcOpenMemHandle",
             "ipcCloseMemHandle", "ipcGetEventHandle", "ipcOpenEventHandle")
    constants = {"memcpyHostToHost": 0, "memcpyHostToDevice": 1, "memcpyDeviceToHost": 2, "memcpyDeviceToDevice": 3,
                 "memcpyDefault": 4, "CUDA_R_32F": 0, "CUDA_R_64F": 1, "CUDA_R_16F": 2, "CUDA_R_16BF": 14,
                 "is_hip": False, "streamCaptureModeGlobal": 0, "streamCaptureModeThreadLocal": 1,
                 "streamCaptureModeRelaxed": 2,
                 "cudaIpcMemLazyEnablePeerAccess": 1}
    module.__dict__.update({name: globals()[name] for name in names} | constants)
    module.__dict__.update({"CUDARuntimeError": CudaError, "runtimeGetVersion": lambda: 12090,
                            "driverGetVersion": lambda: 12090, "deviceCanAccessPeer": lambda a, b: 1,
                            "deviceGetPCIBusId": lambda d: f"0000:{d + 1:02x}:00.0",
                            "deviceGetByPCIBusId": lambda bus: int(bus.split(":")[1], 16) - 1,
                            "profilerStart": lambda: None,
                            "deviceGetAttribute": lambda attribute, device: 1})
    return module


def elapsed_time(start: queue.Event, end: queue.Event) -> float:
    """Milliseconds: nothing here takes time that means anything."""
    return 1.0


def cuda_module(runtime: ModuleType, cublas: ModuleType) -> ModuleType:
    """cupy.cuda."""
    module = ModuleType("cupy.cuda")
    module.__dict__.update({
        "__path__": [], "runtime": runtime, "cublas": cublas, "Device": Device, "Stream": queue.Stream,
        "ExternalStream": lambda ptr, device_id=-1: stream_at(ptr), "Event": queue.Event, "Graph": queue.Graph,
        "get_current_stream": queue.current_stream, "get_elapsed_time": elapsed_time, "Memory": memory.Memory,
        "MemoryPointer": memory.MemoryPointer, "UnownedMemory": memory.UnownedMemory, "alloc": memory.alloc,
        "alloc_pinned_memory": memory.alloc_pinned_memory, "PinnedMemoryPointer": memory.PinnedMemoryPointer,
        "is_available": lambda: Settings.n_devices > 0, "get_device_id": contexts.current_device,
        "get_cublas_handle": lambda: 1,
        "MemoryPool": MemoryPool, "set_allocator": lambda allocator=None: None,
        "using_allocator": pool.using_allocator})
    device = ModuleType("cupy.cuda.device")
    device.__dict__.update({"get_cublas_handle": lambda: 1, "Device": Device,
                            "get_compute_capability": lambda: Device.compute_capability})
    nvrtc = ModuleType("cupy.cuda.nvrtc")
    nvrtc.__dict__["getVersion"] = lambda: (13, 0)
    module.__dict__.update({"device": device, "nvrtc": nvrtc, "nvtx": nvtx_module()})
    return module


def nvtx_module() -> ModuleType:
    """cupy.cuda.nvtx: names are logged where ranges begin, with the names around them."""
    module, log, names = ModuleType("cupy.cuda.nvtx"), list[tuple[str, ...]](), list[str]()

    def push(message: str, id_color: int = -1) -> None:
        names.append(message)
        log.append(tuple(names))
    module.__dict__.update({"available": True, "RangePush": push, "RangePop": names.pop, "_log": log, "_open": names})
    return module


def is_device_address(ptr: int) -> bool:
    """Whether an address lies in pretend device memory."""
    return memory.allocation_at(ptr) is not None


