"""Device memory that the ranks of a node share: found again by address, zeroed, given back."""

import gc

import numpy as np
import pytest

from scaffe.collectives import CommError


def windows(communicator):
    return communicator._ranks.on_device.device.windows


def test_windows_start_at_zero_and_may_be_empty(communicator):
    assert communicator.alloc(0, memory="device").size == 0
    assert not communicator.alloc(3_000, np.int32, "device").get().any()


@pytest.mark.parametrize("communicator", ["ipc", "staged"], indirect=True)
def test_zeros_are_there_for_any_stream(communicator, cp):
    assert not communicator.alloc(3_001, memory="device").get(cp.cuda.Stream(non_blocking=True)).any()


def test_any_slice_is_found(communicator, cp):
    buffer = communicator.alloc(1000, memory="device")
    place, part = windows(communicator).find(buffer), windows(communicator).find(buffer[10:20])
    assert (part.serial, part.offset) == (place.serial, 40)
    assert windows(communicator).find(cp.zeros(10, np.float32)) is None
    assert windows(communicator).find(buffer[1000:]) is None  # where it ends another window may begin, on some ranks


def test_buckets_of_device_buffers_have_a_length(communicator):
    buffer = communicator.alloc(100, memory="device")
    assert communicator.n_ranks == 1 or communicator.algorithms.bandwidth_bytes("reduce", buffer) > 0


def test_memory_goes_back_when_all_ranks_have_done_with_it(communicator):
    freed, runtime = [], windows(communicator)._runtime

    class Runtime:
        def __getattr__(self, name):
            return getattr(runtime, name)

        def free(self, address):
            freed.append(address)
            runtime.free(address)

    windows(communicator)._runtime = Runtime()
    addresses = {communicator.alloc(100_000, memory="device").data.ptr}
    view = communicator.alloc(100_000, memory="device")[5:]
    assert addresses <= set(freed)
    freed.clear()
    gc.collect()
    communicator.alloc(1, memory="device")
    windows(communicator)._runtime = runtime
    assert view.data.ptr - 20 not in freed
    view += 1
    communicator.allreduce(view)
    assert (view.get() == communicator.n_ranks).all()


def test_a_window_that_one_rank_still_uses_stays(communicator):
    kept = communicator.alloc(50_000, memory="device") if communicator.rank == 0 else None
    if communicator.rank:
        communicator.alloc(50_000, memory="device")
    gc.collect()
    communicator.alloc(1, memory="device")
    if kept is not None:
        kept += 1
        assert (kept.get() == 1).all()
    assert communicator.n_ranks == 1 or windows(communicator)._retired or communicator.rank == 0
    communicator.barrier()


@pytest.mark.parametrize("algorithm", ["auto", "C"])
def test_a_communicator_that_has_used_a_device_is_given_back(communicator, algorithm):
    if communicator.n_ranks == 1:
        pytest.skip("one rank alone has nothing to give back")
    made = communicator.split(0)
    array = made.alloc(1000, memory="device")
    array[...] = made.rank + 1
    made.allreduce(array, algorithm=algorithm)
    made.iallreduce(array, algorithm=algorithm).wait(120)
    made.free()
    n_ranks = communicator.n_ranks
    assert (array.get() == n_ranks**2 * (n_ranks + 1) / 2).all()
    with pytest.raises(CommError, match="has been freed"):
        made.allreduce(array)
