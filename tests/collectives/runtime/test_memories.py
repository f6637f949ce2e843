"""Arrays of other libraries in host memory, which give only `__array_interface__` or DLPack."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.runtime import memories


class Interfaced:
    """An array that other libraries see by `__array_interface__` alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__
        self._array = array


class Packed:
    """An array that other libraries see by DLPack alone; on a GPU, if it says so."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self._array, self._device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, **arguments: object) -> object:
        return self._array.__dlpack__(**arguments)


class Everywhere(Packed):
    """As PyTorch's tensors: the type has `__cuda_array_interface__` wherever a tensor lies."""

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        raise AttributeError("in host memory")


class Kept(Packed):
    """As a tensor that requires a gradient."""

    def __dlpack__(self, **arguments: object) -> object:
        raise BufferError("requires a gradient\nsecond line")


@pytest.mark.parametrize("kind", [Interfaced, Packed, Everywhere])
def test_a_foreign_array_is_worked_on_where_it_lies(kind):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert memories.of(kind(array)) is memories.HOST
    flat = memories.HOST.flat(kind(array))
    assert (flat.shape, flat.ctypes.data) == ((24,), array.ctypes.data)
    target = np.zeros((4, 6), np.float32)
    if not memories.viewed(kind(target)).flags.writeable:
        pytest.skip("NumPy before 2.1 only reads what DLPack gives")
    alone = Communicator.single()
    alone.allreduce(kind(array), out=kind(target))
    assert np.array_equal(target.ravel(), array.ravel())


@pytest.mark.parametrize("kind", [Interfaced, Packed])
def test_what_its_owner_lets_nobody_write_is_only_read(kind):
    array = np.arange(5.0)
    if kind is Packed and not memories.viewed(Packed(array)).flags.writeable:
        pytest.skip("NumPy before 2.1 does not tell by DLPack what may be written")
    array.flags.writeable = False
    theirs, alone = kind(array), Communicator.single()
    with pytest.raises(CommError, match="read-only"):
        alone.allreduce(theirs)
    out = np.zeros(5)
    alone.allreduce(theirs, out=out)
    assert np.array_equal(out, array)


def test_memory_that_is_not_given_away_is_one_line():
    with pytest.raises(CommError, match="the memory of a Kept cannot be used: requires a gradient$"):
        Communicator.single().allreduce(Kept(np.zeros(3)))


@pytest.mark.parametrize("thing", [[1.0], 3, np.float32(1), Packed(np.zeros(3), device=2)])
def test_what_lies_nowhere_that_we_know_is_refused(thing):
    assert not memories.is_on_host(thing)
    with pytest.raises(CommError, match="expected a NumPy array, or one with __array_interface__, __dlpack__ or"):
        Communicator.single().allreduce(thing)
