"""All-reduce by recursive doubling: in round i every rank exchanges its whole buffer with the one 2^i places away.

Cost, a rank: log2 P rounds, sends and receives n_elems log2 P; with a rank count that is no power of two, 2 more
rounds and n_elems more each way for the ranks that fold.
Wins: small messages, where latency rules. Source: Thakur, Rabenseifner, Gropp 2005, section 4.5.
Sum order: as in `allreduce_halving`, bit for bit.
"""

from __future__ import annotations

from ..call import Call
from ..halving import Halving
from ..plan import Step


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; every rank ends with the whole reduction."""
    halving = Halving(rank, call)
    return halving.fold() + halving.exchange() + halving.unfold()
