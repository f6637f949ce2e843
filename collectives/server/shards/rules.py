"""What a shard does with an update: the update rules of the parameter server."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from scaffe.collectives.server.mail.messages import Settings


class Rule(Protocol):
    """Applies an update to an interval of a table's values, element by element: an interval may be split anywhere.

    Attributes:
        n_histories: how many history values (momentum and the like) it keeps for every table value.

    A rule may also have ``merges``, False where a step with the sum of some updates is not what a step with each is
    (momentum, AdaGrad, a decay). With a slack above 0 a node then pushes every worker's update by itself, which takes
    its link as often as it has workers; otherwise, and without the attribute, those that come while the last push is
    under way go in one. With slack 0 all workers' updates are one step by definition.
    """

    n_histories: int

    def step(self, values: np.ndarray, update: np.ndarray, histories: list[np.ndarray], first: int,
             settings: Settings) -> None:
        """Change ``values`` and ``histories`` in place.

        Args:
            values, update, histories: flat arrays of the same length in the table's dtype; ``update`` may be
                overwritten.
            first: index in the table of the element ``values[0]``.
            settings: the rate and iteration that the worker passed to ``Batch.update``; those of the first worker if
                several workers' updates are applied in one step.
        """


class Add:
    """values += update, GeePS's own rule: the worker computes the full change, rate included."""

    n_histories = 0

    def step(self, values: np.ndarray, update: np.ndarray, histories: list[np.ndarray], first: int,
             settings: Settings) -> None:
        """See Rule."""
        values += update
