"""What an algorithm claims to cost; a test compares it with what its plans do (see model.counter)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What an algorithm costs without chunks.

    rounds: messages one after another, each of which waits for the one before. sent, received: what the busiest rank
    sends and what the busiest one receives, in multiples of n_elems.
    """

    rounds: int
    sent: float
    received: float
