"""Where benchmarks' buffers lie, and what it takes there to fill, read and time them."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.cuda import device
from scaffe.collectives.errors import CommError


class HostBuffers:
    """NumPy arrays."""

    def window(self, communicator: Communicator, n_elems: int, dtype: str) -> Any:
        """A buffer from Communicator.alloc; all ranks call it."""
        return communicator.alloc(n_elems, dtype)

    def private(self, n_elems: int, dtype: str) -> Any:
        """A buffer of the rank's own."""
        return np.zeros(n_elems, dtype)

    def put(self, part: Any, values: np.ndarray) -> None:
        """Give a part of a buffer these values, which its dtype can hold."""
        part[:] = values

    def get(self, part: Any) -> np.ndarray:
        """A part of a buffer on the host."""
        return part

    def settle(self) -> None:
        """Return when what was called is done."""

    def about(self, communicator: Communicator) -> dict[str, str]:
        """For a report: how such buffers travel; all ranks call it."""
        return {}


class DeviceBuffers(HostBuffers):
    """CuPy arrays on this rank's GPU; ranks of a node take its GPUs in turn."""

    def __init__(self, communicator: Communicator, flag: str) -> None:
        """Raises CommError, on every rank, where one has no GPU; `flag` is what asked for it."""
        missing = next(filter(None, communicator.allgather_objects(device.missing())), "")
        if missing:
            raise CommError(f"{flag}: {missing}", everywhere=True)
        device.use_by_rank(communicator.node_rank)
        self._cupy = device.load()

    def window(self, communicator: Communicator, n_elems: int, dtype: str) -> Any:
        """See HostBuffers."""
        return communicator.alloc(n_elems, dtype, "device")

    def private(self, n_elems: int, dtype: str) -> Any:
        """See HostBuffers."""
        return self._cupy.zeros(n_elems, dtype)

    def put(self, part: Any, values: np.ndarray) -> None:
        """See HostBuffers."""
        part[...] = self._cupy.asarray(values.astype(part.dtype))

    def get(self, part: Any) -> np.ndarray:
        """See HostBuffers."""
        return part.get()

    def settle(self) -> None:
        """See HostBuffers: the collective's result follows on the current stream."""
        self._cupy.cuda.get_current_stream().synchronize()

    def about(self, communicator: Communicator) -> dict[str, str]:
        """See HostBuffers."""
        return {"transport": communicator.describe_device()}


def of(place: str, communicator: Communicator, flag: str) -> HostBuffers:
    """The buffers of a place, `host`, `shared` or `cuda`. Raises CommError as DeviceBuffers does."""
    return DeviceBuffers(communicator, flag) if place == "cuda" else HostBuffers()
