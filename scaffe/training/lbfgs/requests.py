"""What the optimiser asks of whoever holds the vectors and the net: its only ways to touch either."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from scaffe.collectives.server.vectors.commands import Command


@dataclass(frozen=True)
class Run:
    """Carry these commands out on all shards. The answer: an array for each command that reduces, in their order."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Evaluate:
    """Make one pass over the batch with the parameters in vector ``at``, and leave the gradient in vector ``into``.

    The answer: the mean loss, a float.
    """

    at: str
    into: str


Request = Run | Evaluate
Requests = Generator[Request, Any, Any]
"""Asks with ``yield``, and gets the answer as its value."""
