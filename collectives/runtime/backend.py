"""Transport, node group and library calls for one kind of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

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
    """Transport, node group and library calls of one engine for host memory; other kinds derive from it."""

    def __init__(self, transport: Transport, levels: SharedLevels, calls: Mapping[str, Calls]) -> None:
        """`calls`: libraries' own collectives by the name of their algorithm."""
        self.transport, self.levels, self.calls = transport, levels, calls

    def fault(self, algorithm: str) -> str:
        """Why `algorithm` cannot run at this place, beyond what the ranks' topology says; empty where it can."""
        return self.calls[algorithm].fault if algorithm in self.calls else ""

    def refuse_on_helper(self, collective: str, algorithm: str) -> None:
        """Raise CommError where the non-blocking form cannot be had from `algorithm` at this place."""

    def point(self, after: Any) -> Any:
        """`after`, or the end of the caller's work so far, as `begin` takes it."""

    def copy(self, target: Any, source: Any) -> None:
        """Between `begin` and `end`: give `target` the values of `source`; host memory has them already."""

    def wired(self, wire: str) -> Transport:
        """A transport for one plan whose messages carry float32 numbers in 16 bits each (see `transport.wire`)."""
        return WireTransport(self.transport, wire)

    def begin(self, after: Any) -> None:
        """A collective begins, which follows `after` in the place's own order; host memory has none."""

    def end(self) -> Any:
        """The collective has done what the host does: the point at which its result is there, None for at once."""

    def abandon(self) -> None:
        """The collective has failed."""
