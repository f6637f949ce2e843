"""A device's blobs as NumPy arrays: a copy on the host that is as new as the device's whenever somebody looks."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.python import UserBlob


class MirroredBlob(UserBlob):
    """Shows a blob that lies on a device, as Caffe's SyncedMemory does.

    ``data`` and ``diff`` copy from the device when first looked at; what is then written into them goes back with
    ``push``, which the net calls before it computes. An array taken before that is old afterwards, as in Caffe.

    Args:
        blob: the blob.
        kernels: the backend that it belongs to.
    """

    def __init__(self, blob: Blob, kernels: Any) -> None:
        super().__init__(blob)
        self._kernels = kernels
        self._hosts: dict[str, np.ndarray] = {}
        self._shown: set[str] = set()  # parts whose host copy may be newer than the device's

    @property
    def data(self) -> np.ndarray:
        """The data."""
        return self._pull("data")

    @property
    def diff(self) -> np.ndarray:
        """The gradient."""
        return self._pull("diff")

    def reshape(self, *dims: int) -> None:
        """Take a new shape."""
        self.push()
        super().reshape(*dims)

    def push(self) -> None:
        """Bring what was shown, and perhaps written to, back to the device."""
        for part in self._shown:
            if self._hosts[part].shape == self._blob.shape:
                target = getattr(self._blob, part)
                target[...] = self._kernels.to_device(self._hosts[part], target.dtype)
        self._shown.clear()

    def _pull(self, part: str) -> np.ndarray:
        if part in self._shown and self._hosts[part].shape == self._blob.shape:
            return self._hosts[part]
        news = self._kernels.to_host(getattr(self._blob, part))
        wide = news.astype(np.promote_types(news.dtype, np.float32), copy=False)
        host = self._hosts.get(part)
        if host is None or host.shape != wide.shape:
            host = self._hosts[part] = np.array(wide, order="C")
        else:
            host[...] = wide
        self._shown.add(part)
        return host


def show(blob: Blob, kernels: Any) -> UserBlob:
    """A blob as pycaffe shows it: its own memory where that is the host's, else a mirror of it."""
    return UserBlob(blob) if kernels.PLACE == "host" else MirroredBlob(blob, kernels)
