"""Memory in pages, over a pretend driver whose pages really lie at several addresses."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import numpy as np
import pytest

from scaffe.environment import CUDA_PAGES
from scaffe.errors import LayerError
from scaffe.layers.kernels import driver
from scaffe.layers.kernels.device_pages import DevicePages, least_page_bytes
from tests import pretend
from tests.pretend import memory
from tests.pretend.driver import Driver

PAGE = 4096
pytestmark = pretend.needs_compiler


@pytest.fixture(autouse=True)
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend.install(monkeypatch, page_bytes=PAGE)
    gc.collect()  # what other tests have left is given back now


def test_the_structures_lie_in_memory_as_in_cudas_header() -> None:
    """Offsets of cuda.h on 64-bit systems; the pretend driver's compiler checks the same."""
    assert ctypes.sizeof(driver.Location) == 8
    assert ctypes.sizeof(driver.Properties) == 32
    found = [getattr(driver.Properties, name).offset for name, _ in driver.Properties._fields_]
    assert found == [0, 4, 8, 16, 24]
    assert ctypes.sizeof(driver.Access) == 12


def test_arrays_in_the_same_pages_are_the_same_memory() -> None:
    pages = DevicePages(4, PAGE)
    one, other, both = pages.mapped([2, 0, 3]), pages.mapped([1, 2]), pages.mapped([3, 2])
    assert len({array.data.ptr for array in (one, other, both)}) == 3
    one[...] = 1
    other[...] = 2
    assert [one[at * PAGE:(at + 1) * PAGE].get().max() for at in range(3)] == [2, 1, 1]
    assert both.get().tolist() == [1] * PAGE + [2] * PAGE
    one[PAGE - 1:PAGE + 1] = 7  # over the edge between two pages
    assert (other[2 * PAGE - 1:].get().tolist(), both[:1].get().tolist()) == ([7], [1])
    assert one[PAGE:].get()[0] == 7


def test_what_nobody_uses_any_more_is_given_back() -> None:
    library, before = driver.library(), memory.counters.used
    addresses = library.pretend_mapped(), library.pretend_reserved()
    pages = DevicePages(5, PAGE)
    arrays = [pages.mapped([0, 1]), pages.mapped([1, 4])[PAGE:]]
    assert memory.counters.used - before == 5 * PAGE  # aliases take nothing
    del pages
    gc.collect()
    arrays[1][...] = 3  # its memory lasts as long as it does
    assert arrays[1].get().tolist() == [3] * PAGE
    assert memory.counters.used - before == 5 * PAGE
    arrays.clear()
    gc.collect()
    assert memory.counters.used == before
    assert (library.pretend_mapped(), library.pretend_reserved()) == addresses


def test_a_device_without_room_says_so_in_one_line_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = memory.counters.used
    small = Driver(PAGE, driver.library().pretend_used() + 3 * PAGE)
    monkeypatch.setattr(driver, "library", lambda: small)
    with pytest.raises(LayerError, match=r"^cuMemCreate: CUDA error 2, refused by the pretend driver$"):
        DevicePages(10**6, PAGE)
    gc.collect()
    assert memory.counters.used == before


def no_driver() -> None:
    raise OSError("libcuda.so.1: cannot open shared object file")


@pytest.mark.parametrize("library", [no_driver, lambda: Driver(0), lambda: object()])
def test_without_pages_there_are_none(monkeypatch: pytest.MonkeyPatch, library: Callable[[], object]) -> None:
    """Without a driver, with a card or a driver that has none, and with an older driver."""
    assert least_page_bytes() == PAGE
    monkeypatch.setattr(driver, "library", library)
    assert least_page_bytes() == 0


def test_pages_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUDA_PAGES.name, "0")
    assert least_page_bytes() == 0
    monkeypatch.setenv(CUDA_PAGES.name, "1")
    assert least_page_bytes() == PAGE


def test_a_call_that_the_driver_refuses_raises_one_line() -> None:
    with pytest.raises(LayerError, match=r"^cuMemRelease: CUDA error 1, refused by the pretend driver$"):
        driver.call("cuMemRelease", 5)
    pages = DevicePages(1, PAGE)
    array = pages.mapped([0])
    with pytest.raises(LayerError, match="cuMemAddressFree: CUDA error 1"):
        driver.call("cuMemAddressFree", array.data.ptr, PAGE)  # something is mapped there
    assert np.all(array.get() == 255)  # poison: nobody has written it
