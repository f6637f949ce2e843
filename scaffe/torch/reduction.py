"""Reductions of torch.distributed by the names that ours have."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp

from scaffe.collectives import CommError
from scaffe.torch.calls import Calls

NAMES = {ReduceOp.SUM: "sum", ReduceOp.AVG: "sum", ReduceOp.PRODUCT: "prod", ReduceOp.MIN: "min", ReduceOp.MAX: "max"}


class Reduction(NamedTuple):
    """How values of ranks become one.

    Attributes:
        op: ours.
        divisor: what the result is divided by afterwards; 1 for nothing.
    """

    op: str
    divisor: int

    @classmethod
    def of(cls, theirs: Any, n_ranks: int) -> Reduction:
        """Translates a ReduceOp.

        Raises:
            CommError: ours has nothing like it.
        """
        for known, op in NAMES.items():
            if theirs == known:
                return cls(op, n_ranks if known == ReduceOp.AVG else 1)
        raise CommError(f"op must be one of SUM, AVG, PRODUCT, MIN and MAX, not {getattr(theirs, 'op', theirs)}")

    def finish(self, calls: Calls, flat: torch.Tensor) -> None:
        """Adds to `calls` what is left to do on the sum `flat`."""
        if self.divisor != 1:
            calls.then(flat.div_, self.divisor)
