"""One rank by itself: what `Ranks` does for several, without MPI."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.request import Request
from scaffe.collectives.runtime import memories
from scaffe.collectives.runtime.signature import CallSignature
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport.available import shortage


class NoWindows:
    """Memory that no other rank shares."""

    def find(self, array: Any) -> None:
        """No array lies in a window."""


class NoOthers:
    """No other rank's call could differ."""

    def record(self, call: object) -> None:
        """Nobody asks."""


class OneRank:
    """See Ranks: the same methods, with nobody to agree with or to wait for."""

    def __init__(self) -> None:
        self.topology = Topology([0])
        self.windows, self.calls = NoWindows(), NoOthers()

    def run(self, signature: CallSignature, array: Any, source: Any) -> None:
        """See Ranks. The values are the result."""
        if source is not array:
            memories.named(signature.memory).copy(array, source)

    def submit(self, label: str, signature: CallSignature, array: Any, source: Any, after: Any = None) -> Request:
        """See Ranks."""
        point = memories.named(signature.memory).point(after)
        self.run(signature, array, source)
        return Request.completed(label, point)

    def agree(self, signature: CallSignature) -> None:
        """See Ranks."""

    def refuse(self, what: str, fault: str) -> NoReturn:
        """See Ranks."""
        raise CommError(fault, everywhere=True)

    def refuse_on_helper(self, signature: CallSignature) -> None:
        """See Ranks."""

    def resolved_on_device(self, signature: CallSignature, array: Any, table: Any) -> CallSignature:
        """See Ranks. No device is set up where nothing moves."""
        return signature

    def alloc(self, n_elems: int, dtype: np.dtype[Any], memory: str, fault: str = "") -> Any:
        """See Ranks."""
        n_bytes = n_elems * dtype.itemsize
        if not fault and memory == "host":
            fault = shortage(n_bytes, f"{n_bytes} bytes")
        if fault:
            raise CommError(f"alloc: {fault}", everywhere=True)
        return memories.named(memory).zeros(n_elems, dtype)

    def barrier(self) -> None:
        """See Ranks."""

    def exchange(self, call: str, value: Any, root: int = 0) -> Any:
        """See Ranks."""
        return value if call == "bcast" else [value]
