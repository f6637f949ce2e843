"""Is `auto` as good as the best of the algorithms that it could have taken?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scaffe.collectives.errors import CommError

MOST = 1.1
TRIES = 4


def best_other(titles: Sequence[str], seconds: Sequence[float]) -> tuple[float, str]:
    """How many times the fastest other column's time `auto` takes, and that column's title.

    Raises CommError unless `auto` and another column are there.
    """
    others = [(time, title) for time, title in zip(seconds, titles) if title != "auto"]
    if "auto" not in titles or not others:
        raise CommError("--check-auto compares auto with other algorithms: -a needs both, as in mpi,M,C,auto",
                        everywhere=True)
    time, title = min(others)
    return seconds[titles.index("auto")] / time, title


def check(titles: Sequence[str], measure: Callable[[], Sequence[float]]) -> tuple[float, str]:
    """As `best_other`, of the fastest of up to TRIES measurements (all ranks get the same figures from `measure`)."""
    fastest = np.array(measure())
    for _ in range(TRIES - 1):
        if best_other(titles, list(fastest))[0] <= MOST:
            break
        fastest = np.minimum(fastest, measure())
    return best_other(titles, list(fastest))
