"""What a shard does with an update: the update rules of the parameter server."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from scaffe.collectives.server.messages import Settings


class Rule(Protocol):
    """Changes an interval of a table's values by an update. Elementwise: an interval may be cut anywhere.

    Attributes:
        n_histories: how many numbers it keeps beside every value.
    """

    n_histories: int

    def step(self, values: np.ndarray, update: np.ndarray, histories: list[np.ndarray], first: int,
             settings: Settings) -> None:
        """Change values and histories in place.

        Args:
            values, update, histories: flat arrays of one length and the table's dtype; ``update`` may be overwritten.
            first: which element of the table ``values[0]`` is.
            settings: what the worker gave to ``update``, of the first worker where several make one step.
        """


class Add:
    """values += update: what a worker computes itself is simply added (GeePS's own update)."""

    n_histories = 0

    def step(self, values: np.ndarray, update: np.ndarray, histories: list[np.ndarray], first: int,
             settings: Settings) -> None:
        """See Rule."""
        values += update
