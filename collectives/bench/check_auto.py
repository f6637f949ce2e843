"""Checks whether `auto` is about as fast as the best of the algorithms it chooses from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scaffe.collectives.errors import CommError

MOST = 1.1
"""How many times the best other column's time `auto` may take."""
TRIES = 4
"""Measurements of a message size at most, of which each column's fastest counts."""


def best_other(titles: Sequence[str], seconds: Sequence[float]) -> tuple[float, str]:
    """Compares `auto` with the fastest other column.

    Args:
        titles: of the columns.
        seconds: of the columns, in the same order.

    Returns:
        How many times that column's time `auto` takes, and that column's title.

    Raises:
        CommError: unless `auto` and another column are there.
    """
    others = [(time, title) for time, title in zip(seconds, titles, strict=True) if title != "auto"]
    if "auto" not in titles or not others:
        raise CommError("--check-auto compares auto with other algorithms: -a needs both, as in mpi,M,C,auto",
                        everywhere=True)
    time, title = min(others)
    return seconds[titles.index("auto")] / time, title


def check(titles: Sequence[str], measure: Callable[[], Sequence[float]]) -> tuple[float, str]:
    """Repeats a measurement, up to TRIES times, until `auto` is within MOST of the best other column.

    Args:
        titles: of the columns.
        measure: gives each column's seconds, the same on all ranks.

    Returns:
        As `best_other`, of each column's fastest measurement.
    """
    fastest = np.array(measure())
    for _ in range(TRIES - 1):
        if best_other(titles, list(fastest))[0] <= MOST:
            break
        fastest = np.minimum(fastest, measure())
    return best_other(titles, list(fastest))
