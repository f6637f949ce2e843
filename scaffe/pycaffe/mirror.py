"""Blobs of a device, or of bfloat16, as NumPy arrays: a copy that is brought up to date whenever it is accessed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layout import same_memory
from scaffe.layers.base.writes import Writes
from scaffe.layers.python import BlobVec, Python, UserBlob, UserLayer
from scaffe.nets.net_layer import Node
from scaffe.pycaffe.looks import WatchedBlob


class MirroredBlob(UserBlob):
    """A host copy of a blob in device memory, after Caffe's SyncedMemory; float32 if the blob is of a half type.

    ``data`` and ``diff`` are copied from the device at the first access after each ``push``. What the user then writes
    into them goes back with ``push``, which the net calls before it computes: the elements that have changed, and no
    others, since other blobs may have the same memory. An array obtained before ``push`` is stale afterwards, as in
    Caffe: access ``data`` or ``diff`` again.

    Args:
        blob: the blob on the device.
        kernels: the backend that the blob belongs to, whose current device has it. Another may be the current one
            when the blob is looked at, or another thread.
        look: called before each access to the data.
    """

    _accessed: ClassVar[WeakSet[MirroredBlob]] = WeakSet()  # those whose host copy may be newer than the device's

    def __init__(self, blob: Blob, kernels: Any, look: Callable[[], Any]) -> None:
        super().__init__(blob)
        self._look = look
        self._kernels, self._go_there = kernels, kernels.place()
        self._hosts: dict[str, np.ndarray] = {}
        self._pulled: dict[str, np.ndarray] = {}  # what the device had
        self._shown: set[str] = set()  # of "data" and "diff", those accessed since the last push
        self._seen = -1, self._blob.writes  # how often the data had been written when they were copied

    @property
    def data(self) -> np.ndarray:
        """The values, on the host."""
        self._look()
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
        """Copy what the user wrote into what was accessed since the last push to the device."""
        for part in self._shown:
            self._send(part)
        self._shown.clear()
        self._accessed.discard(self)

    @classmethod
    def push_all(cls, writes: Collection[Writes]) -> None:
        """Copy what users wrote into blobs of other nets that share these data."""
        for mirror in [each for each in cls._accessed if any(each._blob.writes is mine for mine in writes)]:
            mirror._send("data")

    def _pull(self, part: str) -> np.ndarray:
        mates = [each for each in self._accessed if part in each._shown and self._has_memory_of(each, part)]
        for mate in mates:
            mate._send(part)
        is_newest = part == "diff" or self._seen == (self._blob.writes.n, self._blob.writes)
        if mates == [self] and is_newest and self._hosts[part].shape == self._blob.shape:
            return self._hosts[part]
        self._go_there()
        news = self._kernels.to_host(getattr(self._blob, part))
        wide = news.astype(np.promote_types(news.dtype, np.float32), copy=False)
        host = self._hosts.get(part)
        if host is None or host.shape != wide.shape:
            host = self._hosts[part] = np.array(wide, order="C")
        else:
            host[...] = wide
        self._pulled[part] = host.copy()
        self._shown.add(part)
        self._accessed.add(self)
        if part == "data":
            self._seen = self._blob.writes.n, self._blob.writes
        return host

    def _has_memory_of(self, other: MirroredBlob, part: str) -> bool:
        if part == "data" or other is self:
            return self._blob.writes is other._blob.writes
        mine, others = self._blob.diff_flat, other._blob.diff_flat
        return type(mine) is type(others) and same_memory(mine, others)

    def _send(self, part: str) -> None:
        """Copy the elements that the user has written to the device."""
        host, pulled = self._hosts[part], self._pulled[part]
        bits = f"u{host.itemsize}"
        is_written = host.view(bits) != pulled.view(bits)
        if host.shape != self._blob.shape or not is_written.any():
            return
        self._go_there()
        target = getattr(self._blob, part)
        present = self._kernels.to_host(target)
        values = np.where(is_written, host, present.astype(host.dtype, copy=False))
        if part == "data":
            self._blob.writes.note()
        target[...] = self._kernels.to_device(values, target.dtype)
        np.copyto(pulled, host)


def show(blob: Blob, kernels: Any, look: Callable[[], Any], reshape: Callable[[], Any]) -> UserBlob:
    """A blob as pycaffe shows it: its own memory if that is on the host and NumPy has its type, else a mirror of it.

    Args:
        blob: the blob.
        kernels: the backend that it belongs to.
        look, reshape: called before each access to data, and before data in host memory take another shape.
    """
    is_numpys = kernels.PLACE == "host" and blob.dtype.kind == "f"
    return WatchedBlob(blob, look, reshape) if is_numpys else MirroredBlob(blob, kernels, look)


class LayerView(UserLayer):
    """One layer as pycaffe shows it.

    Attributes:
        type: the layer's type.
        blobs: its parameter blobs.
    """

    def __init__(self, node: Node, kernels: Any, look: Callable[[], Any], reshape: Callable[[], Any]) -> None:
        self.type: str = node.param.type
        self.blobs = BlobVec(show(blob, kernels, look, reshape) for blob in node.layer.blobs)


def view_of(node: Node, kernels: Any, look: Callable[[], Any], reshape: Callable[[], Any]) -> Any:
    """A layer as pycaffe shows it: a user's Python layer itself, any other as a LayerView."""
    layer = getattr(node.layer, "inner", node.layer)
    return layer.user if isinstance(layer, Python) else LayerView(node, kernels, look, reshape)
