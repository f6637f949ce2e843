"""Device buffers without a GPU, and on one rank: errors in one line, other libraries' streams and events."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from scaffe.collectives import CommError, Communicator
from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.messages.message import wait_until
from tests import pretend
from tests.collectives.test_mpi import HERE, job


@pytest.fixture
def cp(monkeypatch):
    return pretend.install(monkeypatch)


def test_without_a_gpu_there_is_one_line(monkeypatch):
    pretend.install(monkeypatch, n_devices=0)
    assert device.missing() == "device buffers need a GPU, and CUDA finds none: cudaErrorNoDevice: no CUDA-capable " \
                               "device is detected"
    with pytest.raises(CommError, match="CUDA finds none"):
        Communicator.single().alloc(4, memory="device")


def test_without_cupy_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert device.missing().startswith("device buffers need CuPy, which cannot be imported")


def test_the_communicator_loads_no_cupy():
    code = ("import sys; from scaffe.collectives import Communicator; from scaffe.collectives.runtime import memories; "
            "sys.exit('cupy' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], cwd=HERE.parents[1], check=False).returncode == 0


@pytest.mark.mpi_job
def test_alloc_without_a_gpu_fails_alike_on_all_ranks():
    body = """
import sys
sys.modules["cupy"] = None
from scaffe.collectives import CommError, Communicator
c = Communicator.world(deadline=20)
try:
    c.alloc(4, memory="device")
except CommError as error:
    texts = c.allgather_objects((str(error), error.everywhere))
    sys.exit(0 if set(texts) == {(texts[0][0], True)} and "need CuPy" in texts[0][0] else 3)
"""
    assert job(2, ["-c", body]).returncode == 0



@pretend.needs_compiler
def test_collectives_of_one_rank_change_nothing(cp):
    alone = Communicator.single()
    array = alone.alloc(7, np.float64, "device")
    array += 3
    alone.reduce(array), alone.allgather(array), alone.ireduce(array, after=cp.cuda.Stream().record()).wait(1)
    out = cp.zeros(7)
    alone.allreduce(array, out=out)
    assert (array.get() == 3).all()
    assert (out.get() == 3).all()
    assert alone.describe_device() == "one rank by itself"


@pretend.needs_compiler
def test_the_result_of_one_rank_follows_the_event(cp):
    writer, reader = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    alone, array = Communicator.single(), cp.zeros(9)
    with pretend.deferring():
        with writer:
            array[...] = 5
            after = writer.record()
        alone.iallreduce(array, after=after).wait(1, reader)
        assert array.get(reader).tolist() == [5] * 9


def test_handles_of_other_libraries_streams_and_events(cp):
    class Torch:
        cuda_stream = 17

    class Value:
        value = 18

    class Numba:
        handle = Value()

    class NumbasDefault:
        handle = ctypes.c_void_p(0)

    class Protocol:
        def __cuda_stream__(self):
            return 0, 20

    stream = cp.cuda.Stream()
    things = stream, Torch(), Numba(), 19, NumbasDefault(), Protocol()
    assert [device.handle(thing) for thing in things] == [stream.ptr, 17, 18, 19, 0, 20]


def test_a_failure_on_the_device_is_an_error_and_no_endless_wait(cp, monkeypatch):
    point = device.Point.now()
    monkeypatch.setattr(point._runtime, "eventQuery", lambda event: 719)
    with pytest.raises(CommError, match="CUDA error 719"):
        wait_until(point.is_reached, backs_off=True)


def test_cuda_is_not_asked_again_at_once_what_was_not_reached(cp, monkeypatch):
    now, asked, status = [100.0], [], [device.NOT_READY]
    monkeypatch.setattr(device.time, "monotonic", lambda: now[0])
    point = device.Point.now()
    monkeypatch.setattr(point._runtime, "eventQuery", lambda event: asked.append(now[0]) or status[0])
    for _ in range(1000):  # a millisecond in steps of one microsecond
        assert not point.is_reached()
        now[0] += 1e-6
    gaps = [later - sooner for sooner, later in zip(asked, asked[1:], strict=False)]
    assert len(asked) < 30
    assert max(gaps) < 60e-6
    status[0] = 0
    now[0] += 60e-6
    assert point.is_reached()
    assert point.is_reached()
    status[0] = device.NOT_READY
    point.mark(cp.cuda.Stream())
    n_asked = len(asked)
    assert not point.is_reached()
    assert len(asked) == n_asked + 1  # what was recorded anew is asked for at once


@pytest.mark.parametrize(("named", "followed"), [(None, []), (1, [0]), (2, [2]), (77, [77])])
def test_the_current_stream_follows_the_stream_that_an_array_names(cp, monkeypatch, named, followed):
    """In __cuda_array_interface__ 1 stands for the default stream, whose handle is 0, and None for no stream."""
    own, seen = cp.zeros(6, np.float32), []

    class Foreign:
        __cuda_array_interface__ = {"typestr": "<f4", "shape": (2, 3), "data": (own.data.ptr, False), "version": 3,
                                    "stream": named}

    class Point:
        def hold(self):
            pass

    monkeypatch.setattr(device.Point, "now", lambda stream: seen.append(stream) or Point())
    flat = device.flat(Foreign())
    assert (flat.shape, flat.data.ptr) == ((6,), own.data.ptr)
    assert seen == followed
