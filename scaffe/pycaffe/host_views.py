"""Host views: blobs on a device, or of bfloat16, as NumPy arrays that are brought up to date at each access."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np

from scaffe.layers.base.axes import same_memory
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.writes import Writes
from scaffe.layers.python import BlobVec, Python, UserBlob, UserLayer
from scaffe.nets.net_layer import Node
from scaffe.pycaffe.lazy_passes import WatchedBlob


class HostView(UserBlob):
    """A host copy of a blob in device memory, after Caffe's SyncedMemory; float32 if the blob is of a half type.

    ``data`` and ``diff`` are copied from the device at the first access after each ``push``. The net calls ``push``
    before it computes, which copies the elements that the user has changed back to the device, and no others, since
    other blobs may share the memory. An array obtained before ``push`` is stale afterwards, as in Caffe: access
    ``data`` or ``diff`` again.

    Args:
        blob: the blob on the device.
        kernels: the backend of the blob, whose current device now is the blob's; at a later access it may be another.
        before_read: called before each access to the data.
    """

    _accessed: ClassVar[WeakSet[HostView]] = WeakSet()  # views whose host copy may be newer than the device's data

    def __init__(self, blob: Blob, kernels: Any, before_read: Callable[[], Any]) -> None:
        super().__init__(blob)
        self._before_read = before_read
        self._kernels, self._go_there = kernels, kernels.place()
        self._hosts: dict[str, np.ndarray] = {}
        self._pulled: dict[str, np.ndarray] = {}  # what the device had when it was copied
        self._shown: set[str] = set()  # of "data" and "diff", those accessed since the last push
        self._seen = -1, self._blob.writes  # the write count of the data when they were copied

    @property
    def data(self) -> np.ndarray:
        self._before_read()
        return self._pull("data")

    @property
    def diff(self) -> np.ndarray:
        return self._pull("diff")

    def reshape(self, *dims: int) -> None:
        self.push()
        super().reshape(*dims)

    def push(self) -> None:
        """Copy what the user has written since the last push to the device."""
        for part in self._shown:
            self._send(part)
        self._shown.clear()
        self._accessed.discard(self)

    @classmethod
    def push_all(cls, writes: Collection[Writes]) -> None:
        """Copy what users wrote to the device, for all views whose data belong to one of ``writes``, of any net."""
        for view in [each for each in cls._accessed if any(each._blob.writes is mine for mine in writes)]:
            view._send("data")

    def _lent(self) -> Any:
        """The device's own array, with what users have written; as long as somebody holds it, every access copies."""
        if self._blob.dtype.kind != "f":
            raise BufferError(f"a blob of {self._blob.dtype} has no form in DLPack; its data and diff are float32")
        self._before_read()
        self._send_all("data")
        self._go_there()
        return self._blob.writes.lend(self._blob.data, self._kernels.xp.asarray)

    def _send_all(self, part: str) -> list[HostView]:
        """Send what users have written to this memory. Returns the views of it whose host copies are in use."""
        mates = [each for each in self._accessed if part in each._shown and self._has_memory_of(each, part)]
        for mate in mates:
            mate._send(part)
        return mates

    def _pull(self, part: str) -> np.ndarray:
        mates, writes = self._send_all(part), self._blob.writes
        is_newest = part == "diff" or (self._seen == (writes.n, writes) and not writes.is_lent)
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

    def _has_memory_of(self, other: HostView, part: str) -> bool:
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


def view_of_blob(blob: Blob, kernels: Any, before_read: Callable[[], Any],
                 before_reshape: Callable[[], Any]) -> UserBlob:
    """A blob as pycaffe shows it: its own memory if that is on the host and of a NumPy type, else a HostView.

    ``before_read`` is called before each access to the data, ``before_reshape`` before the blob takes another shape.
    """
    is_numpys = kernels.PLACE == "host" and blob.dtype.kind == "f"
    return WatchedBlob(blob, before_read, before_reshape) if is_numpys else HostView(blob, kernels, before_read)


class LayerView(UserLayer):
    """One layer as pycaffe shows it: its type, and its parameter blobs."""

    def __init__(self, node: Node, kernels: Any, before_read: Callable[[], Any],
                 before_reshape: Callable[[], Any]) -> None:
        self.type: str = node.param.type
        self.blobs = BlobVec(view_of_blob(blob, kernels, before_read, before_reshape) for blob in node.layer.blobs)


def view_of_layer(node: Node, kernels: Any, before_read: Callable[[], Any], before_reshape: Callable[[], Any]) -> Any:
    """A layer as pycaffe shows it: a user's Python layer itself, any other as a LayerView."""
    layer = getattr(node.layer, "inner", node.layer)
    return layer.user if isinstance(layer, Python) else LayerView(node, kernels, before_read, before_reshape)
