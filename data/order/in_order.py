"""Records one after another."""

from __future__ import annotations

import numpy as np


class InOrder:
    """Records one after another, from the first again after the last.

    Args:
        n_records: of the source.
        skip: records left out at the very start (Caffe's rand_skip).
    """

    def __init__(self, n_records: int, skip: int = 0) -> None:
        self.n_records, self.skip = n_records, skip

    def records(self, visits: np.ndarray) -> np.ndarray:
        """Record numbers of these visits, int64."""
        return (visits + self.skip) % self.n_records
