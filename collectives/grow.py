"""Grows a communicator: merges its ranks with ranks that one of them has started."""

from __future__ import annotations

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance.joining import JoiningRank, JoiningRanks, merged
from scaffe.collectives.fault_tolerance.losses import on_joined_ranks
from scaffe.collectives.runtime.one_rank import OneRank


def enlarge(communicator: Communicator, joining: JoiningRanks | None) -> Communicator:
    """Makes a communicator of these ranks and of joining ranks, which come last. All ranks call it.

    Args:
        communicator: nobody uses it again, but to shrink it.
        joining: on rank 0, which has started them, ready; None elsewhere.

    Raises:
        RankLost: on all ranks, where a rank or a joining one is lost meanwhile; `shrink` goes on without it.
        CommError: this is one rank without a launcher.
    """
    ranks = communicator._ranks
    if isinstance(ranks, OneRank):
        raise CommError("one rank by itself, without a launcher, takes nobody in")
    comm = merged(ranks.comm, None if joining is None else joining.pair, communicator._give_up)
    if comm is None:
        ranks.has_ended = True
        raise ranks.losses.error()
    if joining is not None:
        joining.confirm()
    ranks.end()
    return on_joined_ranks(comm, lambda comm, nodes: Communicator(comm, communicator.deadline, nodes, is_ours=True))


def join(joining: JoiningRank) -> Communicator:
    """As `enlarge`, on a joining rank. Its process ends where the ranks go on without it."""
    return on_joined_ranks(joining.join(), lambda comm, nodes: Communicator(comm, None, nodes, is_ours=True))
