"""Reduce by recursive halving, then a binomial gather to the root (Rabenseifner), for any number of ranks.

Cost, a rank: log2 P rounds to reduce-scatter and as many to gather; the root receives 2 (P-1)/P n_elems, another rank
sends at most that much; with no power of two, one more round and n_elems more for the ranks that fold.
Wins: medium messages, too short to fill a chain's pipeline. Source: Rabenseifner, ICCS 2004, section 3; Thakur,
Rabenseifner, Gropp 2005, section 4.4. Sum order: as in `allreduce_halving`.
"""

from __future__ import annotations

from ..call import Call
from ..halving import Halving
from ..plan import Step


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; the root ends with the reduction, the others with partial values."""
    halving = Halving(rank, call)
    return halving.fold() + halving.reduce_scatter() + halving.gather()
