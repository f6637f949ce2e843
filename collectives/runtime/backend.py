"""Transport, node group and library calls for one kind of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from scaffe.collectives.planning.algorithm import Algorithm
from scaffe.collectives.runtime.shared_levels import SharedLevels
from scaffe.collectives.transport.transport import Transport
from scaffe.collectives.transport.wire import WireTransport


class Calls(Protocol):
    """Another library's collectives behind our signatures."""

    fault: str
    """Why these ranks cannot use it; empty where they can."""

    def run(self, collective: str, source: Any, array: Any, op: str, root: int) -> None:
        """The collective of that name from `source` into `array`, which may be the same."""


class Backend:
    """What one engine uses for host memory; other kinds of memory derive from it.

    Attributes:
        transport: makes messages.
        levels: the node's ranks as a group that works on shared memory.
        calls: libraries' own collectives, by the name of their algorithm.
    """

    def __init__(self, transport: Transport, levels: SharedLevels, calls: Mapping[str, Calls]) -> None:
        self.transport, self.levels, self.calls = transport, levels, calls

    def fault(self, algorithm: Algorithm) -> str:
        """Why `algorithm` cannot run on this memory, beyond what the ranks' topology says; empty where it can."""
        if not algorithm.library:
            return ""
        if algorithm.library not in self.calls:
            return f"algorithm '{algorithm}' is not for arrays in this memory: known are {', '.join(self.calls)}"
        return self.calls[algorithm.library].fault

    def refuse_on_helper(self, collective: str, algorithm: Algorithm) -> None:
        """Raises CommError where the non-blocking form cannot be had from `algorithm`."""

    def point(self, after: Any) -> Any:
        """Gives `after`, or the end of the caller's work so far, as `begin` takes it; None in host memory."""

    def copy(self, target: Any, source: Any) -> None:
        """Between `begin` and `end`: copies `source` into `target`; host memory has been copied already."""

    def wired(self, wire: str) -> Transport:
        """Makes a transport for one plan whose messages carry float32 numbers in 16 bits (see `transport.wire`)."""
        return WireTransport(self.transport, wire)

    def begin(self, after: Any) -> None:
        """Begins a collective, which follows the point `after` on a device; host memory has no such order."""

    def end(self) -> Any:
        """The host's part of the collective is done.

        Returns:
            The point on the device at which the result is there; None where it is there at once.
        """

    def abandon(self) -> None:
        """The collective has failed."""
