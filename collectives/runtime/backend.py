"""What one engine uses for one kind of memory: transport, the node's ranks on shared memory, libraries' own calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from scaffe.collectives.planning.algorithm import Algorithm
from scaffe.collectives.planning.levels import Group, IntraNodePhase, Levels, Part, Phase
from scaffe.collectives.runtime.arguments import CallSignature
from scaffe.collectives.shared.schedule import DOUBLED
from scaffe.collectives.topology import Topology
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


class Node(Protocol):
    """The ranks of a node as a group that works on memory which all of them have mapped."""

    def run(self, collective: str, array: Any, op: str = "sum", root: int = 0, parts: tuple[Part, ...] = ()) -> None:
        """Run one collective in place among them; `root` and the owners of `parts` count within the node."""


Across = Callable[[Any, Group], None]
"""Runs a collective's upper part on this rank's array, among the ranks of a group."""


class SharedLevels:
    """The shared-memory part of algorithms for one engine."""

    def __init__(self, node: Node, topology: Topology, rank: int) -> None:
        """Args:
            node: this rank's node as a group.
            topology: of the communicator.
            rank: this one, in the communicator.
        """
        self._node, self._topology, self._rank = node, topology, rank
        self._phases = lru_cache(maxsize=4096)(self._planned)

    def run(self, signature: CallSignature, array: Any, across: Across) -> None:
        """Runs a collective on this rank's flat array; `across` runs its messages among one rank of each node."""
        if self._topology.n_nodes == 1:
            collective = "reduce" if signature.leaves_one_per_node else signature.collective
            self._node.run(collective + DOUBLED * signature.algorithm.is_doubled, array, signature.op, signature.root)
            return
        for phase in self._phases(signature):
            if isinstance(phase, IntraNodePhase):
                part = array[phase.start : phase.stop]
                self._node.run(phase.collective, part, signature.op, phase.root, phase.parts)
            else:
                across(array, phase.group)

    def _planned(self, signature: CallSignature) -> list[Phase]:
        levels = Levels(signature.collective, self._topology, signature.n_elems, signature.root,
                        signature.leaves_one_per_node)
        return levels.phases(self._rank, signature.algorithm.is_split)
