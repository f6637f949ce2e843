"""What a memory plan's executor works with, whatever lies below the memory that a net computes in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Protocol

from scaffe.memory.plan.layout import Layout
from scaffe.memory.plan.placements import Placement
from scaffe.memory.plan.plan import Plan
from scaffe.memory.problem.iteration import Bandwidth, Iteration
from scaffe.memory.problem.tensors import StateTensor

Record = Callable[[str, str, float, float], None]
OUT, BACK, WAITS = "moves out", "moves back", "waits for moves"
"""Lanes of a timeline: what goes to a disk, or from a device to the host, and what comes back; what a device waits
for."""


class ArrayMemory(Protocol):
    """Memory of the arrays of a plan.

    Attributes:
        arrays: uint8, one for each array of the plan.
        most_bytes: that those may have together which are not arranged.
    """

    arrays: list[Any]
    most_bytes: int

    def arrange(self, offsets: Sequence[int] | None) -> None:
        """Have the first arrays at these offsets of one memory, in bytes; None: apart. Their contents are lost."""

    def take(self, number: int) -> None:
        """Have memory for an array, with any contents, unless it is there."""

    def drop(self, number: int) -> None:
        """Let others have an array's memory, if it is there. Its contents are lost."""

    def give_back(self) -> None:
        """Give back what waits for an array."""


class ArrayMover(Protocol):
    """Moves arrays out and back.

    Attributes:
        record: called after each move with its lane, label, start and end (``time.perf_counter()``), and so after each
            wait on a device (the host's are timed by whoever waits); None: nobody records.
        holds_host: whether ``wait`` and ``wait_all`` make the host wait, or a device that goes on by itself.
    """

    holds_host: ClassVar[bool]
    record: Record | None

    @property
    def offloaded(self) -> int:
        """Bytes moved out so far."""

    @property
    def fetched(self) -> int:
        """Bytes moved back so far."""

    def place(self, numbers: Collection[int]) -> None:
        """Give these arrays of one iteration a place each below; their last places are taken back. Nothing may be on
        its way. Raises UserError: there is no room for them."""

    def offload(self, number: int, name: str) -> None:
        """Begin to write an array out."""

    def fetch(self, number: int, name: str) -> None:
        """Begin to read an array back."""

    def wait(self, number: int) -> None:
        """Whoever computes next waits for the last move that was begun for an array."""

    def wait_all(self) -> None:
        """Whoever computes next waits for all moves."""

    def bandwidth(self) -> Bandwidth | None:
        """Bytes a second each way, of all moves so far; None: they were not measured."""

    def close(self) -> None:
        """Let go of everything."""


class PersistentTensors(Protocol):
    """Where arrays are between iterations whose contents last from one to the next."""

    def move(self, numbers: Collection[int]) -> None:
        """From the next iteration on these are away between iterations, and the others are in memory."""

    def begin(self, mover: ArrayMover) -> None:
        """Bring about what ``move`` said. Nothing may be on its way. Raises UserError: a move failed."""

    def show(self, numbers: Collection[int]) -> None:
        """Have these where they can be read, and written, until the next iteration begins."""

    def release(self, numbers: Collection[int]) -> None:
        """Have those of these that are shown leave memory, where reading brings them back."""

    def show_all(self) -> None:
        """Before arrays get other addresses: have none there that would lose its contents."""


class Clock(Protocol):
    """Measures how long steps take. Steps that run in one pass begin together, and end one after another.

    Attributes:
        seconds: of each step, as last measured.
    """

    @property
    def seconds(self) -> dict[int, float]:
        """Of each step, as last measured."""

    def begin(self, step: int) -> None:
        """A step's work is next."""

    def end(self, step: int) -> None:
        """It is done."""


class BackingStore(Protocol):
    """A slower memory below the one that a net computes in."""

    def bandwidth(self) -> Bandwidth:
        """Bytes a second each way."""

    def memory(self, lengths: Sequence[int], state: Sequence[StateTensor]) -> ArrayMemory:
        """Memory of arrays of these lengths, in bytes, and of those held."""

    def mover(self, memory: ArrayMemory) -> ArrayMover:
        """What moves them."""

    def persistent(self, names: dict[int, str], memory: ArrayMemory, state: Sequence[StateTensor]) -> PersistentTensors:
        """Those of these names that last, by number; those held are the last numbers of all."""

    def clock(self) -> Clock:
        """What measures steps."""

    def fitted(self, iteration: Iteration, place: Placement, n_bytes: int, bandwidth: Bandwidth,
               n_blobs: int) -> tuple[Plan, Layout]:
        """A plan within a limit, and where arrays lie. Raises MemoryTooSmallError: there is none."""

    def least_bytes(self, iteration: Iteration) -> int:
        """The least limit for which ``fitted`` has a plan."""
