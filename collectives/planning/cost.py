"""What an algorithm claims to cost; a test compares it with what its plans do (see model.counter)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What an algorithm costs when the buffer is not cut into chunks.

    Attributes:
        rounds: length of the longest chain of messages in which each waits for the one before.
        sent, received: what the busiest sender sends and the busiest receiver receives, in multiples of n_elems.
    """

    rounds: int
    sent: float
    received: float
