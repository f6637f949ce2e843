"""What ranks do wrong with device buffers is the same CommError on all of them, and the next collective works."""

import mmap

import numpy as np
import pytest
from conftest import IS_REAL

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.ipc.windows import DeviceWindows
from scaffe.collectives.cuda.messages import aware
from tests.collectives.everywhere import one_message


def fails_everywhere(communicator, call):
    """The one message that every rank's CommError carries."""
    return one_message(communicator, call, device.load().ones(3, np.float32))


@pytest.mark.parametrize("communicator", ["ipc", "staged"], indirect=True)
def test_places_differ(communicator, last, cp):
    array = np.zeros(1235, np.float32) if last else cp.zeros(1235, np.float32)
    message = fails_everywhere(communicator, lambda: communicator.reduce(array, algorithm="C"))
    assert "in device memory" in message
    assert "in host memory" in message


def test_places_differ_at_the_first_call(communicator, last, cp):
    fresh = Communicator.world(deadline=120)
    array = np.zeros(1236, np.float32) if last else cp.zeros(1236, np.float32)
    message = fails_everywhere(fresh, lambda: fresh.bcast(array))
    assert "1236 x float32 in device memory" in message
    assert f"rank {communicator.n_ranks - 1} has bcast of 1236 x float32 in host memory" in message


@pytest.mark.parametrize("communicator", ["ipc", "staged"], indirect=True)
def test_lengths_differ(communicator, last, cp):
    array = cp.zeros(1234 if last else 1233, np.float32)
    assert "1234" in fails_everywhere(communicator, lambda: communicator.allreduce(array))


def test_one_in_a_window_the_other_not_even_when_the_call_is_known(communicator, last, cp):
    if communicator.topology.n_nodes > 1:
        pytest.skip("ranks on several nodes")
    shared, private = communicator.alloc(777, memory="device"), cp.zeros(777, np.float32)
    communicator.reduce(shared, algorithm="M"), communicator.reduce(private, algorithm="M")
    array = private if last else shared
    message = fails_everywhere(communicator, lambda: communicator.reduce(array, algorithm="M"))
    assert "private memory" in message
    assert "window" in message


def test_alloc_of_different_lengths(communicator, last):
    text = fails_everywhere(communicator, lambda: communicator.alloc(10 + last, memory="device"))
    assert "alloc" in text


def out_of_memory(*arguments):
    raise RuntimeError("cudaErrorMemoryAllocation: out of memory")


@pytest.mark.parametrize("communicator", ["ipc", "staged"], indirect=True)
def test_a_full_gpu_is_named_with_the_bytes(communicator, last, cp, monkeypatch):
    if last:
        monkeypatch.setattr(cp.cuda.runtime, "malloc", out_of_memory)
        monkeypatch.setattr(cp, "zeros", out_of_memory)
    with pytest.raises(CommError) as caught:
        communicator.alloc(1 << 20, memory="device")
    monkeypatch.undo()
    who, n_bytes = f"rank {communicator.n_ranks - 1}", 4 << 20  # whole driver blocks in a window
    assert str(caught.value) == (f"alloc: {who} cannot have {n_bytes} bytes of device memory: "
                                 "cudaErrorMemoryAllocation: out of memory")
    assert caught.value.everywhere
    array = communicator.alloc(5, memory="device")
    communicator.allreduce(array)
    assert not array.get().any()


def test_cupys_pool_gives_back_what_is_free_before_memory_is_short(communicator, last, cp, monkeypatch):
    class Pool:
        def free_all_blocks(self):
            freed.append(self)

    malloc, freed = cp.cuda.runtime.malloc, []
    monkeypatch.setattr(cp, "get_default_memory_pool", Pool)
    monkeypatch.setattr(cp.cuda.runtime, "malloc", lambda n: malloc(n) if freed else out_of_memory())
    assert not communicator.alloc(77, memory="device").get().any()
    assert len(freed) == 1


def refused(*arguments):
    raise RuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")


def opened_elsewhere(handle):
    """Other memory than the one that was shared."""
    return device.load().cuda.runtime.malloc(2 << 20)


class Copied:
    """An opened allocation that shows at first what is there, and then what is written here alone."""

    kept = []


def opened_as_a_copy(handle):
    from tests.pretend.memory import mapped_handle

    address, mapping = mapped_handle(handle, mmap.MAP_PRIVATE)
    Copied.kept.append(mapping)
    return address


@pytest.mark.parametrize(("name", "why"), [
    ("ipcGetMemHandle", "cannot share"), ("ipcOpenMemHandle", "cannot open the device memory of the node's rank 0"),
    ("opens something else", "finds other values in shared device memory"),
    ("writes go astray", "finds other sums")])
def test_without_ipc_all_ranks_send_messages_and_say_why(communicator, last, cp, monkeypatch, name, why):
    if communicator.topology.n_nodes > 1:
        pytest.skip("one node will do")
    if IS_REAL and why.endswith("sums"):
        pytest.skip("a real device has no such windows")
    runtime = cp.cuda.runtime
    if last and why.startswith("finds"):
        opened = opened_elsewhere if why.endswith("memory") else opened_as_a_copy
        monkeypatch.setattr(runtime, "ipcOpenMemHandle", opened)
        monkeypatch.setattr(runtime, "ipcCloseMemHandle", lambda address: None)
    elif last:
        monkeypatch.setattr(runtime, name, refused)
    fresh = Communicator.world(deadline=120)
    said = communicator.allgather_objects(fresh.describe_device())
    monkeypatch.undo()
    assert len(set(said)) == 1
    assert "within a node by messages (" in said[0]
    who = 0 if why.endswith("sums") else communicator.n_ranks - 1  # in whose window the last rank's sums are missing
    assert f"rank {who} {why}" in said[0]
    assert "\n" not in said[0]
    array = fresh.alloc(1000, memory="device")
    array += fresh.rank + 1
    fresh.allreduce(array)
    assert (array.get() == sum(range(fresh.n_ranks + 1))).all()


@pytest.mark.skipif(IS_REAL, reason="only a pretend MPI can be made to say that it takes device memory")
@pytest.mark.parametrize("what", ["long messages", "windows", "nothing"])
def test_an_mpi_that_cannot_send_all_of_device_memory_is_not_trusted(communicator, last, cp, monkeypatch, what):
    windows, allocate, message = set(), DeviceWindows.allocate, aware._message

    def noted(self, n_elems, dtype):
        array = allocate(self, n_elems, dtype)
        windows.add(array.data.ptr)
        return array

    def spoiled(array):
        is_bad = {"long messages": array.nbytes == aware.LENGTHS[-1], "windows": array.data.ptr in windows}.get(what)
        return message(cp.zeros(array.nbytes, np.uint8) if is_bad else array)

    monkeypatch.setenv("SCAFFE_CUDA_AWARE", "1")
    monkeypatch.setattr(DeviceWindows, "allocate", noted)
    if last:
        monkeypatch.setattr(aware, "_message", spoiled)
    fresh = Communicator.world(deadline=120)
    said = communicator.allgather_objects(fresh.describe_device())
    monkeypatch.undo()
    assert len({text[text.index("messages "):] for text in said}) == 1  # before that, nodes differ
    assert ("received other values than were sent from device memory" in said[0]) == (what != "nothing")
    assert ("messages from device memory" in said[0]) == (what == "nothing")
    array = cp.zeros(1000, np.float32)
    array += fresh.rank + 1
    fresh.allreduce(array, algorithm="C")
    assert (array.get() == sum(range(fresh.n_ranks + 1))).all()


@pytest.mark.parametrize(("communicator", "call", "text"), [
    ("ipc", lambda c, x: c.ireduce(x, algorithm="mpi"), "cannot be the MPI library's own"),
    ("ipc", lambda c, x: c.reduce(x, algorithm="Q"), "no algorithm is called 'Q'"),
    ("staged", lambda c, x: c.reduce(x, algorithm="M"),
     "needs CUDA IPC between the ranks of a node: SCAFFE_CUDA_IPC=0"),
], indirect=["communicator"])
def test_what_device_buffers_cannot_have(communicator, last, cp, call, text):
    assert text in fails_everywhere(communicator, lambda: call(communicator, cp.zeros(4, np.float32)))


def test_nccl_says_why_it_cannot(communicator, last, cp):
    calls = communicator._ranks.engine.backends["device"].calls["nccl"]
    if not calls.fault:
        pytest.skip("it can")
    array = cp.zeros(4, np.float32)
    assert "NCCL" in fails_everywhere(communicator, lambda: communicator.allreduce(array, algorithm="nccl"))


@pytest.mark.parametrize(("call", "text"), [
    (lambda c, cp: c.reduce(cp.zeros(4, np.complex64)), "dtype must be one of"),
    (lambda c, cp: c.reduce(cp.zeros(4, np.float32), op="mean"), "op must be one of"),
    (lambda c, cp: c.bcast(cp.zeros((4, 4), np.float32)[:, 1]), "contiguous"),
    (lambda c, cp: c.reduce(cp.zeros(4, np.float32), out=cp.zeros(5, np.float32)), "out must be 4 x float32"),
    (lambda c, cp: c.reduce(cp.zeros(4, np.float32), out=np.zeros(4, np.float32)), "in the same memory"),
    (lambda c, cp: c.reduce([1.0, 2.0]), "__dlpack__ or __cuda_array_interface__, got list"),
    (lambda c, cp: c.alloc(4, memory="moon"), "memory must be one of host, device, not 'moon'"),
    (lambda c, cp: c.ibcast(cp.zeros(4, np.float32), after="soon"), "expected a CUDA stream or event, got str"),
])
def test_arguments_that_cannot_be(communicator, cp, call, text):
    with pytest.raises(CommError, match=text):
        call(communicator, cp)


def test_a_missing_peer_is_named(communicator, cp):
    if communicator.n_ranks != 2:
        pytest.skip("needs two ranks")
    array = cp.zeros(100, np.float32)
    communicator.ibcast(array).wait(120)
    if communicator.rank == 1:
        request = communicator.ibcast(array)
        with pytest.raises(CommError, match=r"rank 1: ibcast: not complete after 0\.3 s"):
            request.wait(timeout=0.3)
    communicator.barrier()
    if communicator.rank == 0:
        request = communicator.ibcast(array)
    request.wait(120)


def test_another_librarys_read_only_array_is_refused(communicator, last, cp):
    class ReadOnly:
        def __init__(self, array):
            self._array = array

        @property
        def __cuda_array_interface__(self):
            given = dict(self._array.__cuda_array_interface__)
            return given | {"data": (given["data"][0], True)}

    array = cp.zeros(17, np.float32)
    message = fails_everywhere(communicator, lambda: communicator.allreduce(ReadOnly(array) if last else array))
    assert "read-only" in message
