"""Who is late when in ``benchmarks/asynchronous.py``: the same on every rank, ours and the peers'."""

from __future__ import annotations

import random

KINDS = ("nobody", "one in turn", "one at random", "one always")


def seconds(kind: str, worker: int, iteration: int, n_workers: int, base: float) -> float:
    """How long a worker sleeps in an iteration, in place of computing.

    Args:
        kind: "nobody" is late; in a third of the iterations "one in turn" is, drawn anew each time; the last worker is
            late in a third of its iterations ("one at random"), or in all ("one always").
        worker, iteration: which.
        n_workers: how many there are.
        base: seconds of a worker that is not late; one that is takes twice as long.
    """
    draw = random.Random(iteration)
    is_late, who = draw.random() < 1 / 3, draw.randrange(n_workers)
    late = {"nobody": False, "one in turn": is_late and worker == who,
            "one at random": is_late and worker == n_workers - 1, "one always": worker == n_workers - 1}[kind]
    return base * (2 if late else 1)
