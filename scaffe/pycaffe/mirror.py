"""Blobs of a device, or of bfloat16, as NumPy arrays: a copy that is brought up to date whenever it is accessed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.python import UserBlob
from scaffe.pycaffe.looks import WatchedBlob


class MirroredBlob(UserBlob):
    """A host copy of a blob in device memory, after Caffe's SyncedMemory; float32 if the blob is of a half type.

    ``data`` and ``diff`` are copied from the device at the first access after each ``push``. What the user then writes
    into them goes back with ``push``, which the net calls before it computes. An array obtained before ``push`` is
    stale afterwards, as in Caffe: access ``data`` or ``diff`` again.

    Args:
        blob: the blob on the device.
        kernels: the backend that the blob belongs to, whose current device has it. Another may be the current one
            when the blob is looked at, or another thread.
    """

    def __init__(self, blob: Blob, kernels: Any) -> None:
        super().__init__(blob)
        self._kernels, self._go_there = kernels, kernels.place()
        self._hosts: dict[str, np.ndarray] = {}
        self._shown: set[str] = set()  # of "data" and "diff", those whose host copy may be newer than the device's

    @property
    def data(self) -> np.ndarray:
        """The values, on the host."""
        return self._pull("data")

    @property
    def diff(self) -> np.ndarray:
        """The gradient, on the host."""
        return self._pull("diff")

    def reshape(self, *dims: int) -> None:
        """Take a new shape."""
        self.push()
        super().reshape(*dims)

    def push(self) -> None:
        """Copy whatever was accessed since the last push, and so may have been written to, back to the device."""
        self._go_there()
        for part in self._shown:
            if self._hosts[part].shape == self._blob.shape:
                target = getattr(self._blob, part)
                target[...] = self._kernels.to_device(self._hosts[part], target.dtype)
        self._shown.clear()

    def _pull(self, part: str) -> np.ndarray:
        if part in self._shown and self._hosts[part].shape == self._blob.shape:
            return self._hosts[part]
        self._go_there()
        news = self._kernels.to_host(getattr(self._blob, part))
        wide = news.astype(np.promote_types(news.dtype, np.float32), copy=False)
        host = self._hosts.get(part)
        if host is None or host.shape != wide.shape:
            host = self._hosts[part] = np.array(wide, order="C")
        else:
            host[...] = wide
        self._shown.add(part)
        return host


def show(blob: Blob, kernels: Any, look: Callable[[], Any]) -> UserBlob:
    """A blob as pycaffe shows it: its own memory if that is on the host and NumPy has its type, else a mirror of it.

    Args:
        blob: the blob.
        kernels: the backend that it belongs to.
        look: called before each access to data in host memory.
    """
    is_numpys = kernels.PLACE == "host" and blob.dtype.kind == "f"
    return WatchedBlob(blob, look) if is_numpys else MirroredBlob(blob, kernels)
