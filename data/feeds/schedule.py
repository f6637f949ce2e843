"""Which piece of which batch is made next, and which batches are ready: no threads, no locks, no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Job = TypeVar("Job")


@dataclass(frozen=True, eq=False)
class Piece(Generic[Job]):
    """A part of a batch that one thread makes.

    Attributes:
        batch: the batch's number.
        job: what the batch is made of.
        rows: the samples to make; None: all are made, the batch is to be finished.
    """

    batch: int
    job: Job
    rows: slice | None


class Schedule(Generic[Job]):
    """Hands out the pieces of batches in order, never those of a batch whose slot is in use.

    Batch b is made in slot b % n_slots, once the consumer has returned batch b - n_slots. After the last piece of a
    batch comes one that finishes it. After an error no later batch is made; earlier ones still are.

    Args:
        n_slots: batches that are held at a time.

    Attributes:
        n_begun: batches begun.
        n_freed: batches that the consumer has returned; set by it.
        ready: batches that can be given, each with its error.
    """

    def __init__(self, n_slots: int) -> None:
        self._n_slots = n_slots
        self.n_begun = self.n_freed = 0
        self.ready: dict[int, BaseException | None] = {}
        self._waiting: deque[Piece[Job]] = deque()
        self._under_way: list[Piece[Job]] = []
        self._n_left: dict[int, int] = {}  # pieces of each batch that have not ended
        self._errors: dict[int, tuple[int, BaseException]] = {}  # by batch: of its first piece with one
        self._end: int | None = None  # the first batch that cannot be had

    @property
    def may_begin(self) -> bool:
        """Whether the next batch has a free slot."""
        return self._end is None and self.n_begun < self.n_freed + self._n_slots

    @property
    def has_ended(self) -> bool:
        """Whether no batch will be begun, and none that comes before the error is being made."""
        return self._end is not None and not any(batch < self._end for batch in self._n_left)

    def begin(self, job: Job, n_rows: int, piece_rows: int) -> None:
        """Add the pieces of the next batch, of up to ``piece_rows`` samples each."""
        batch, self.n_begun = self.n_begun, self.n_begun + 1
        rows = [slice(start, min(start + piece_rows, n_rows)) for start in range(0, max(n_rows, 1), piece_rows)]
        self._n_left[batch] = len(rows)
        self._waiting.extend(Piece(batch, job, one) for one in rows)

    def take(self) -> Piece[Job] | None:
        """The next piece to make; None if there is none now."""
        while self._waiting:
            piece = self._waiting.popleft()
            if self._end is None or piece.batch < self._end:
                self._under_way.append(piece)
                return piece
            self._n_left.pop(piece.batch, None)
        return None

    def end(self, piece: Piece[Job], error: BaseException | None) -> None:
        """A piece has been made, or has failed."""
        self._under_way.remove(piece)
        if piece.rows is None:
            self._close(piece.batch, error)
            return
        if error is not None and piece.rows.start <= self._errors.get(piece.batch, (piece.rows.start,))[0]:
            self._errors[piece.batch] = piece.rows.start, error
        if piece.batch in self._n_left:
            self._n_left[piece.batch] -= 1
            if self._n_left[piece.batch] == 0:
                self._waiting.appendleft(Piece(piece.batch, piece.job, None))

    def error_of(self, batch: int) -> BaseException | None:
        """The error of the first piece of this batch that failed."""
        return self._errors[batch][1] if batch in self._errors else None

    def fail(self, error: BaseException) -> None:
        """The next batch cannot be begun."""
        batch, self.n_begun = self.n_begun, self.n_begun + 1
        self._close(batch, error)

    def take_back(self) -> None:
        """Hand out again what is under way: the threads that were making it are gone (a fork's child)."""
        self._waiting.extendleft(reversed(self._under_way))
        self._under_way = []

    def _close(self, batch: int, error: BaseException | None) -> None:
        self._n_left.pop(batch, None)
        self._errors.pop(batch, None)
        self.ready[batch] = error
        if error is not None:
            self._end = batch if self._end is None else min(self._end, batch)
