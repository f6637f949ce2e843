"""What an executor needs of memory and of the backing store below it, whichever they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from scaffe.memory.plan.layout import Layout, Stay
from scaffe.memory.plan.placements import Placement
from scaffe.memory.plan.plan import Plan
from scaffe.memory.problem.iteration import Bandwidth, Iteration
from scaffe.memory.problem.tensors import StateTensor

Record = Callable[[str, str, float, float], None]
OUT, BACK, WAITS = "moves out", "moves back", "waits for moves"
"""Lanes of a timeline: offloads, fetches, and a device's waits for them."""


class ArrayMemory:
    """Memory for the tensors of a plan.

    Attributes:
        arrays: uint8, one for each tensor.
        most_bytes: the most that tensors which are not arranged may have together.
    """

    arrays: list[Any]
    most_bytes: int

    def arrange(self, offsets: Sequence[int] | None, stays: Sequence[Stay] = ()) -> None:
        """Have the first arrays at these offsets of one memory, in bytes, or, for None, each at addresses of its own.
        Their contents are lost. ``stays``: the pages of all arrays, where the plan has put them in pages."""

    def place(self, step: int) -> Sequence[int]:
        """Have all arrays be where they are in a step. Returns the numbers of those that were elsewhere."""
        return ()

    def take(self, number: int) -> None:
        """Have memory for an array, with any contents, unless it has some."""

    def drop(self, number: int) -> None:
        """Let others have an array's memory, if it has some. Its contents are lost."""

    def give_back(self) -> None:
        """Give back memory that waits for an array."""


class ArrayMover(Protocol):
    """Offloads tensors and fetches them.

    Attributes:
        record: called after each move with its lane, label, start and end (``time.perf_counter()``), and on a device
            after each wait (the host's waits are timed by whoever waits); None if nobody records.
        holds_host: whether ``wait`` and ``wait_all`` make the host wait, or a device that goes on by itself.
    """

    holds_host: ClassVar[bool]
    record: Record | None

    @property
    def offloaded(self) -> int:
        """Bytes offloaded so far."""

    @property
    def fetched(self) -> int:
        """Bytes fetched so far."""

    def place(self, numbers: Collection[int]) -> None:
        """Give each of these tensors of one iteration a place in the backing store; earlier places are given up.
        Nothing may be on its way. Raises UserError if there is no room for them."""

    def offload(self, number: int, name: str) -> None:
        """Begin to write a tensor to the backing store."""

    def fetch(self, number: int, name: str) -> None:
        """Begin to read a tensor back."""

    def wait(self, number: int) -> None:
        """Have whoever computes next wait for the last move that was begun for a tensor."""

    def wait_all(self) -> None:
        """Have whoever computes next wait for all moves."""

    def bandwidth(self) -> Bandwidth | None:
        """Bytes a second each way, of all moves so far; None if they were not measured."""

    def close(self) -> None:
        """Release threads, streams and places."""


class PersistentTensors:
    """Where persistent tensors are between iterations."""

    def move(self, numbers: Collection[int]) -> None:
        """From the next iteration on, have these offloaded between iterations, and the others in memory."""

    def begin(self, mover: ArrayMover) -> None:
        """Put tensors where ``move`` said. Nothing may be on its way. Raises UserError if a move fails."""

    def show(self, numbers: Collection[int]) -> None:
        """Have these where they can be read and written whole until the next iteration begins."""

    def release(self, numbers: Collection[int]) -> None:
        """Have those of these that are shown take no memory until they are read again."""

    def show_all(self) -> None:
        """Have all shown, so that none loses its contents when arrays get other addresses."""


class Clock(Protocol):
    """Measures how long steps take. Steps that run in one pass begin together, and end one after another."""

    @property
    def seconds(self) -> dict[int, float]:
        """Seconds of each step, as last measured."""

    def begin(self, step: int) -> None:
        """A step's work begins."""

    def end(self, step: int) -> None:
        """A step's work is done."""


class Opened(NamedTuple):
    """The tensors' memory, what moves them, the persistent ones, and what measures steps."""

    memory: ArrayMemory
    mover: ArrayMover
    persistent: PersistentTensors
    clock: Clock


class BackingStore(Protocol):
    """A slower memory below the one in which a net computes."""

    def bandwidth(self) -> Bandwidth:
        """Bytes a second each way."""

    def open(self, lengths: Sequence[int], state: Sequence[StateTensor], names: dict[int, str]) -> Opened:
        """Memory for tensors of these lengths, in bytes, and behind them for state tensors, and what goes with it.
        ``names``: of the persistent tensors, by number."""

    def fitted(self, iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth,
               n_blobs: int) -> tuple[Plan, Layout]:
        """A plan within a limit, and where tensors lie. Raises MemoryTooSmallError if there is none."""

    def least_bytes(self, iteration: Iteration) -> int:
        """The least limit for which ``fitted`` has a plan."""
