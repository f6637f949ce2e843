"""Machines that are not there: how long workers take to compute, and servers' links to carry parameters. Seeded."""

from __future__ import annotations

import random
from dataclasses import dataclass

SPREAD, SLOW, SLOW_FACTOR = 0.2, 0.05, 3.0
HALT, HALT_FACTOR = 0.01, 10.0
WORKERS_PER_SERVER = 8


@dataclass(frozen=True)
class Rates:
    """Attributes:
        image: seconds that a usual worker computes for an image.
        bandwidth: bytes per second of a machine's link, in each direction.
        latency: seconds that a message takes besides.
    """

    image: float = 1e-3
    bandwidth: float = 125e6
    latency: float = 1e-4


class Machines:
    """Workers of uneven speed, and a server for every eight of them.

    Speeds are spread by a fifth; one worker in twenty takes three times as long; one computation in a hundred takes ten
    times as long as usual, since machines are shared.

    Args:
        n_workers: how many.
        n_bytes: of all parameters.
        rates: see there.
    """

    def __init__(self, n_workers: int, n_bytes: int, rates: Rates) -> None:
        self.n_workers, self.n_bytes, self.rates = n_workers, n_bytes, rates
        self._random = random.Random(n_workers)
        self.n_servers = max(1, n_workers // WORKERS_PER_SERVER)
        self._factors = [1.0] + [self._random.lognormvariate(0, SPREAD)
                                 * (SLOW_FACTOR if self._random.random() < SLOW else 1) for _ in range(n_workers - 1)]
        self._busy_until = 0.0

    def compute(self, worker: int, n_images: int) -> float:
        """Seconds that a worker takes for some images now."""
        halt = HALT_FACTOR if self.n_workers > 1 and self._random.random() < HALT else 1.0
        return n_images * self.rates.image * self._factors[worker] * halt

    def carry(self, now: float) -> float:
        """When parameters or gradients, sent between a worker and all servers from ``now`` on, are there.

        The servers' links carry them one after another, each server its part; a worker's own link is no faster.
        """
        if self.n_workers == 1:
            return now
        start = max(now, self._busy_until)
        self._busy_until = start + self.n_bytes / (self.rates.bandwidth * self.n_servers)
        return max(self._busy_until, start + self.n_bytes / self.rates.bandwidth) + self.rates.latency

    def sum_up(self, n_images: int) -> float:
        """Seconds of a step in which all workers share some images, and reduce and broadcast by a chain or ring."""
        each = [self.compute(worker, -(-n_images // self.n_workers)) for worker in range(self.n_workers)]
        if self.n_workers == 1:
            return each[0]
        return max(each) + 2 * (self.n_bytes / self.rates.bandwidth + self.n_workers * self.rates.latency)
