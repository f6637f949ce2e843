"""A device's memory in pages, which may lie at several addresses at once, so that arrays which are never used together
share them, each at contiguous addresses of its own. (CUDA's virtual memory management: "CUDA C++ Programming Guide",
"Virtual Memory Management"; granularities are 2 MiB on today's cards.)

Kernels and copies that come one after another on the device see what the one before wrote at other addresses of a
page (the guide's "Virtual Aliasing Support"). No kernel may use a page at two addresses.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from ctypes import byref, c_int, c_size_t, c_uint64
from typing import Any

from scaffe.environment import CUDA_PAGES
from scaffe.errors import LayerError
from scaffe.layers.kernels import device, driver

IS_SUPPORTED = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
PINNED, ON_DEVICE, READ_WRITE, LEAST = 1, 1, 3, 0


def least_page_bytes() -> int:
    """The shortest page of the current device, in bytes; 0 if it has none, or SCAFFE_CUDA_PAGES is 0."""
    if not CUDA_PAGES.get():
        return 0
    is_supported, n_bytes, number = c_int(), c_size_t(), device.current()
    with suppress(LayerError):
        driver.call("cuDeviceGetAttribute", byref(is_supported), IS_SUPPORTED, number)
        if is_supported:
            driver.call("cuMemGetAllocationGranularity", byref(n_bytes), byref(_properties(number)), LEAST)
    return n_bytes.value


def _properties(number: int) -> driver.Properties:
    return driver.Properties(PINNED, 0, driver.Location(ON_DEVICE, number))


class DevicePages:
    """Pages of the current device's memory. They are given back once no array lies in them any more, and this is gone.

    Args:
        page_bytes: of each, a multiple of ``least_page_bytes``.

    Raises:
        LayerError: in one line, if the device has not so much memory, or the driver refuses.
    """

    def __init__(self, n_pages: int, page_bytes: int) -> None:
        self._page_bytes, self._device = page_bytes, device.current()
        self._handles: list[int] = []
        self._left: list[tuple[int, int]] = []  # addresses whose arrays are gone, and bytes there
        weakref.finalize(self, _free, self._handles, self._left, page_bytes, self._device).atexit = False
        for _ in range(n_pages):
            self._handles.append(self._new())

    def mapped(self, pages: Sequence[int]) -> Any:
        """An array at new addresses, uint8, (n_pages * page_bytes,), whose bytes are those of the given pages, by
        number, in this order. Raises LayerError."""
        n_bytes, start = len(pages) * self._page_bytes, c_uint64()
        driver.call("cuMemAddressReserve", byref(start), n_bytes, 0, 0, 0)
        owner = _Owner(self)
        weakref.finalize(owner, self._left.append, (start.value, n_bytes)).atexit = False
        for at, page in enumerate(pages):
            driver.call("cuMemMap", start.value + at * self._page_bytes, self._page_bytes, 0, self._handles[page], 0)
        access = driver.Access(driver.Location(ON_DEVICE, self._device), READ_WRITE)
        driver.call("cuMemSetAccess", start.value, n_bytes, byref(access), 1)
        return device.array_at(start.value, n_bytes, owner)

    def _new(self) -> int:
        made, arguments = c_uint64(), (self._page_bytes, byref(_properties(self._device)), 0)
        try:
            driver.call("cuMemCreate", byref(made), *arguments)
        except LayerError:  # CuPy's pool may have what it can spare
            device.give_back()
            driver.call("cuMemCreate", byref(made), *arguments)
        return made.value


class _Owner:
    """Lives as long as an array does that lies in pages, and keeps these."""

    def __init__(self, pages: DevicePages) -> None:
        self.pages = pages


def _free(handles: list[int], left: list[tuple[int, int]], page_bytes: int, number: int) -> None:
    """Give everything back behind all that was queued on the device, whatever has failed before."""
    with suppress(Exception), device.load().cuda.Device(number):  # CuPy's, where the device has failed
        device.load().cuda.runtime.deviceSynchronize()
    for start, n_bytes in left:
        for at in range(start, start + n_bytes, page_bytes):
            with suppress(LayerError):  # what was never mapped
                driver.call("cuMemUnmap", at, page_bytes)
        with suppress(LayerError):
            driver.call("cuMemAddressFree", start, n_bytes)
    for handle in handles:
        with suppress(LayerError):
            driver.call("cuMemRelease", handle)
