"""The door to CUDA's driver, for what CuPy has no calls for: memory in pages, and events that recordings record. All is
called by the C names of NVIDIA's "CUDA Driver API", with its structures as they lie in memory."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ushort, c_void_p
from functools import cache
from typing import Any

from scaffe.errors import LayerError

LIBRARY = "libcuda.so.1"
EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL


class Location(Structure):
    """CUmemLocation: a kind of place (1: a device), and its number."""

    _fields_ = (("type", c_int), ("id", c_int))


class Flags(Structure):
    """The last part of CUmemAllocationProp, all zero."""

    _fields_ = (("compression", c_ubyte), ("rdma", c_ubyte), ("usage", c_ushort), ("reserved", c_ubyte * 4))


class Properties(Structure):
    """CUmemAllocationProp: of physical memory (type 1: page-locked)."""

    _fields_ = (("type", c_int), ("handle_types", c_int), ("location", Location), ("windows", c_void_p),
                ("flags", Flags))


class Access(Structure):
    """CUmemAccessDesc: who may do what (3: read and write)."""

    _fields_ = (("location", Location), ("flags", c_int))


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuMemGetAllocationGranularity": (POINTER(c_size_t), POINTER(Properties), c_int),
    "cuMemCreate": (POINTER(c_uint64), c_size_t, POINTER(Properties), c_uint64),
    "cuMemRelease": (c_uint64,),
    "cuMemAddressReserve": (POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemAddressFree": (c_uint64, c_size_t),
    "cuMemMap": (c_uint64, c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemUnmap": (c_uint64, c_size_t),
    "cuMemSetAccess": (c_uint64, c_size_t, POINTER(Access), c_size_t),
    "cuEventRecordWithFlags": (c_void_p, c_void_p, c_uint),
}


@cache
def library() -> Any:
    """The driver's library. Raises OSError if there is none."""
    found = ctypes.CDLL(LIBRARY)
    found.cuGetErrorString.argtypes = (c_int, POINTER(c_char_p))
    for name, types in ARGUMENTS.items():
        getattr(found, name).argtypes = types
    return found


def call(name: str, *arguments: Any) -> None:
    """Call one of the functions above. Raises LayerError, in one line, if there is no driver, it has no such function
    (each is older than CUDA 11.2), or it refuses."""
    try:
        status = getattr(library(), name)(*arguments)
    except (OSError, AttributeError) as error:
        raise LayerError(f"CUDA's driver cannot be asked: {error}") from None
    if status:
        raise LayerError(f"{name}: CUDA error {status}, {_text(status)}")


def _text(status: int) -> str:
    found = c_char_p()
    library().cuGetErrorString(status, ctypes.byref(found))
    return (found.value or b"unknown").decode()
