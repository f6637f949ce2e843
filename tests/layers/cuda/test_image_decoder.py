"""Image files decoded into batches on the device: the right parts at the right places, and nothing done too early."""

from __future__ import annotations

import ctypes
import sys
import threading
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from scaffe.data.records.decode import Colour, decode
from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu, cuda, device
from tests import pretend
from tests.pretend import nvimgcodec

cv2 = pytest.importorskip("cv2")
CROP = 9


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch) -> Any:
    if pretend.compiler.compiler() is None:
        pytest.skip("no C++ compiler to emulate kernels with")
    return pretend.install(monkeypatch, n_devices=2, with_decoder=True)


def files_of(n: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """JPEG files of several sizes, and those sizes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(CROP, 40, (n, 2))
    files = [cv2.imencode(".jpg", rng.integers(0, 256, (*size, 3), np.uint8))[1].reshape(-1) for size in sizes]
    return files, sizes


def expected_of(file: np.ndarray, place: np.ndarray) -> np.ndarray:
    image = decode(file, Colour.BGR)
    assert image is not None
    return image[place[0]:place[0] + CROP, place[1]:place[1] + CROP]


def now(array: Any) -> np.ndarray:
    """What the device's memory holds, without waiting for anything."""
    held = (ctypes.c_uint8 * array.size).from_address(array.data.ptr)
    return np.frombuffer(held, np.uint8).reshape(array.shape).copy()


@pytest.mark.parametrize("n", [1, 7])
def test_parts_of_images_of_any_size_come_to_their_places(cp: Any, n: int) -> None:
    files, sizes = files_of(n)
    decoder, rng = cuda.image_decoder(), np.random.default_rng(3)
    places = np.column_stack([rng.integers(0, sizes - CROP + 1), np.zeros(n, np.int64)])
    rows = rng.permutation(n + 2)[:n]
    out = decoder.empty((n + 2) * CROP * CROP * 3).reshape(n + 2, CROP, CROP, 3)
    out.fill(1)
    cp.cuda.runtime.deviceSynchronize()
    with pretend.deferring():
        assert decoder.decode(files, sizes, places, rows, out).all()
        found = now(out)
    for file, place, row in zip(files, places, rows, strict=True):
        np.testing.assert_array_equal(found[row], expected_of(file, place))
    assert (np.delete(found, rows, 0) == 1).all()


def test_what_is_not_decoded_or_has_another_size_is_left(cp: Any) -> None:
    files, sizes = files_of(5)
    decoder, places, rows = cuda.image_decoder(), np.zeros((5, 3), np.int64), np.arange(5)
    out = decoder.empty(5 * CROP * CROP * 3).reshape(5, CROP, CROP, 3)
    nvimgcodec.Settings.fault = staticmethod(lambda call, file: file is files[1])
    sizes[3] += 1
    assert decoder.decode(files, sizes, places, rows, out).tolist() == [True, False, True, False, True]
    np.testing.assert_array_equal(out.get()[4], expected_of(files[4], places[4]))
    assert not decoder.first_error


def test_a_decoder_that_raises_leaves_all_and_is_told_of(cp: Any) -> None:
    def refuse(call: int, file: np.ndarray) -> bool:
        if call == 1:
            raise MemoryError("out of memory\nat nvjpeg.cpp:12")
        return False

    nvimgcodec.Settings.fault = staticmethod(refuse)
    files, sizes = files_of(2)
    decoder, places, rows = cuda.image_decoder(), np.zeros((2, 3), np.int64), np.arange(2)
    out = decoder.empty(2 * CROP * CROP * 3).reshape(2, CROP, CROP, 3)
    assert not decoder.decode(files, sizes, places, rows, out).any()
    assert decoder.first_error == "out of memory"
    assert decoder.decode(files, sizes, places, rows, out).all()


def test_each_thread_decodes_with_its_own_on_the_nets_device(cp: Any) -> None:
    cp.cuda.Device(1).use()
    decoder, wrong = cuda.image_decoder(), list[str]()
    out = decoder.empty(4 * 8 * CROP * CROP * 3).reshape(32, CROP, CROP, 3)

    def read(number: int) -> None:
        files, sizes = files_of(8, number)
        places = np.zeros((8, 3), np.int64)
        for _ in range(3):
            decoder.decode(files, sizes, places, number * 8 + np.arange(8), out)
        for i, file in enumerate(files):
            if not np.array_equal(out[number * 8 + i].get(), expected_of(file, places[i])):
                wrong.append(f"{number}: {i}")

    threads = [threading.Thread(target=read, args=[number], name=f"r{number}") for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and not decoder.first_error
    assert set(nvimgcodec.Settings.threads) == {"r0", "r1", "r2", "r3"}
    assert nvimgcodec.Settings.devices == {1}


def test_the_threads_stream_stays_its_current_one(cp: Any) -> None:
    files, sizes = files_of(1)
    decoder, stream = cuda.image_decoder(), device.compute_stream()
    out = decoder.empty(CROP * CROP * 3).reshape(1, CROP, CROP, 3)
    stream.use()
    assert decoder.decode(files, sizes, np.zeros((1, 2), np.int64), np.zeros(1, np.int64), out).all()
    assert device.current_stream() == stream


def test_pixels_of_the_host_are_there_when_upload_returns(cp: Any) -> None:
    decoder = cuda.image_decoder()
    pixels = cuda.batch_allocator()(30).view(np.uint8).reshape(5, 2, 4, 3)
    out = decoder.empty(120).reshape(5, 2, 4, 3)
    pixels[...] = np.arange(120).reshape(pixels.shape)
    with pretend.deferring():
        decoder.upload(pixels[1:4], out[1:4])
        np.testing.assert_array_equal(now(out)[1:4].reshape(-1), np.arange(24, 96))


def test_staging_copies_what_lies_on_the_device(cp: Any) -> None:
    """The feed may write to it again once it has been asked for the next batch."""
    memory, n = cp.empty((2, 3), np.uint8), 0

    def next_batch() -> tuple[Any, np.ndarray]:
        nonlocal n
        n += 1
        memory.fill(n)
        cp.cuda.runtime.deviceSynchronize()
        return memory, np.full(2, n, np.float32)

    staging = cuda.staging(next_batch)
    found = []
    with pretend.deferring():
        for _ in range(4):
            images, labels = staging.next()
            found.append((images.copy(), labels.copy()))
    assert [(set(images.get().ravel()), set(labels.get())) for images, labels in found] == [
        ({n}, {n}) for n in range(1, 5)]


def test_without_one_it_says_why(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LayerError, match="the net computes on the CPU"):
        cpu.image_decoder()
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", None)
    with pytest.raises(LayerError, match=r"nvidia\.nvimgcodec cannot be imported .*pip install 'nvidia-nvimg"):
        cuda.image_decoder()
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", ModuleType("nvidia.nvimgcodec"))
    with pytest.raises(LayerError, match=r"is older than 0\.9"):
        cuda.image_decoder()
