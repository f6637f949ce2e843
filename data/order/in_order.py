"""The order of a source that is not shuffled."""

from __future__ import annotations

import numpy as np


class InOrder:
    """Records one after another; after the last comes the first again.

    Args:
        n_records: number of records of the source.
        skip: records left out at the start of the first pass (Caffe's rand_skip).
    """

    def __init__(self, n_records: int, skip: int = 0) -> None:
        self.n_records, self.skip = n_records, skip

    def records(self, visits: np.ndarray) -> np.ndarray:
        """Record numbers of these visits, int64."""
        return (visits + self.skip) % self.n_records
