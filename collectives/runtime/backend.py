"""What one engine uses for one kind of memory: transport, the node's ranks on shared memory, libraries' own calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from scaffe.collectives.planning.algorithm import Algorithm
from scaffe.collectives.planning.levels import Part
from scaffe.collectives.transport.transport import Transport
from scaffe.collectives.transport.wire import WireTransport

if TYPE_CHECKING:
    from scaffe.collectives.cuda.streams import Streams

Call = Callable[[Any, Any, str, int], None]
"""Another library's collective, called with source, array (which may be the same), op and root."""


class Calls(Protocol):
    """Another library's collectives."""

    fault: str
    """Why these ranks cannot use it; empty where they can."""

    def of(self, collective: str) -> Call:
        """The collective of that name."""


class Node(Protocol):
    """The ranks of a node as a group that works on memory which all of them have mapped."""

    def run(self, collective: str, array: Any, op: str = "sum", root: int = 0, parts: tuple[Part, ...] = ()) -> None:
        """Runs one collective in place among them; `root` and the owners of `parts` count within the node."""


class Backend:
    """What one engine uses for host memory; other kinds of memory derive from it. ``streams``: on a device, those on
    which collectives are ordered; None in host memory, which has no such order."""

    streams: Streams | None = None

    def __init__(self, transport: Transport, node: Node, calls: Mapping[str, Calls]) -> None:
        self.transport, self.node, self.calls = transport, node, calls

    def fault(self, algorithm: Algorithm) -> str:
        """Why `algorithm` cannot run on this memory, beyond what the ranks' topology says; empty where it can."""
        if not algorithm.library:
            return ""
        if algorithm.library not in self.calls:
            return f"algorithm '{algorithm}' is not for arrays in this memory: known are {', '.join(self.calls)}"
        return self.calls[algorithm.library].fault

    def refuse_on_helper(self, collective: str, algorithm: Algorithm) -> None:
        """Raises CommError where the non-blocking form cannot be had from `algorithm`."""

    def copy(self, target: Any, source: Any) -> None:
        """Copies `source` into `target` within a collective; host memory has been copied already."""

    def wired(self, wire: str) -> Transport:
        """Makes a transport for one plan whose messages carry float32 numbers in 16 bits (see `transport.wire`)."""
        return WireTransport(self.transport, wire)
