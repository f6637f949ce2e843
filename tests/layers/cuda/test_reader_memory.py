"""Batches on their way to the device: none is overwritten before it has been copied, and readers' memory not copied."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda import copies
from tests import pretend


@pytest.fixture
def cp(monkeypatch):
    return pretend.install(monkeypatch)


class Feed:
    """Fills the same memory again for every batch, as a feed may once the next batch is asked for."""

    def __init__(self, images, labels):
        self.images, self.labels, self.n = images.reshape(3, 5), labels, 0

    def next(self):
        self.n += 1
        self.images[...], self.labels[...] = self.n, -self.n
        return self.images, self.labels


@pretend.needs_compiler
@pytest.mark.parametrize("readers", ["pinned", "plain", "mixed"])
def test_every_batch_arrives_though_its_memory_is_written_again(cp, readers):
    allocate = cuda.batch_allocator()
    plain = lambda n_elems: np.empty(n_elems, np.float32)  # noqa: E731
    feed = Feed((plain if readers == "plain" else allocate)(15), (allocate if readers == "pinned" else plain)(3))
    staging = cuda.staging(feed.next)
    with pretend.deferring():
        found = []
        for _ in range(6):
            images, labels = staging.next()
            found.append((images.copy(), labels.copy()))
    values = [(set(images.get().ravel()), set(labels.get())) for images, labels in found]
    assert values == [({n}, {-n}) for n in range(1, 7)]


@pretend.needs_compiler
def test_what_readers_fill_is_not_copied_by_the_main_thread(cp, monkeypatch):
    copied = []
    monkeypatch.setattr(copies.np, "copyto", lambda target, source: copied.append(source.shape))
    allocate = cuda.batch_allocator()
    staging = cuda.staging(Feed(allocate(20)[:15], allocate(3)).next)  # a part: the last batches may be smaller
    staging.next()
    assert not copied
    cuda.staging(Feed(np.empty(15, np.float32), allocate(3)).next).next()
    assert copied == [(3, 5)] * 2


@pretend.needs_compiler
def test_readers_allocate_on_the_nets_device(monkeypatch):
    cp, seen = pretend.install(monkeypatch, n_devices=2), []
    cp.cuda.Device(1).use()
    allocate = cuda.batch_allocator()
    thread = threading.Thread(target=lambda: (allocate(4), seen.append(cp.cuda.runtime.getDevice())))
    thread.start()
    thread.join()
    cp.cuda.Device(0).use()
    assert seen == [1]
