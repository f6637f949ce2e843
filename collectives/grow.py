"""Communicators that grow: ranks take others in, which one of them has started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance.joining import Newcomer, Newcomers, bridged
from scaffe.collectives.fault_tolerance.losses import joined
from scaffe.collectives.runtime.one_rank import OneRank
from scaffe.collectives.runtime.ranks import Ranks


def grown(ranks: Ranks | OneRank, give_up: Callable[[str], None], newcomers: Newcomers | None) -> Any:
    """The communicator of all ranks and of newcomers. All ranks call it; nobody uses these again.

    Args:
        ranks: those that take them in.
        give_up: ends the job with a line.
        newcomers: on rank 0, ready; None elsewhere.

    Returns:
        mpi4py's, the newcomers last.

    Raises:
        RankLost: on all ranks, where one or a newcomer is lost.
        CommError: one rank without a launcher.
    """
    if isinstance(ranks, OneRank):
        raise CommError("one rank by itself, without a launcher, takes nobody in")
    comm = bridged(ranks.comm, None if newcomers is None else newcomers.pair, give_up)
    if comm is None:
        ranks.has_ended = True
        raise ranks.losses.error()
    if newcomers is not None:
        newcomers.told_in()
    ranks.end()
    return comm


def enlarge(communicator: Communicator, newcomers: Newcomers | None) -> Communicator:
    """Makes a communicator of these ranks and of newcomers that are ready, which come last; all ranks call it.

    Args:
        communicator: nobody uses it again, but to shrink it.
        newcomers: on rank 0, which has started them; None elsewhere.

    Raises:
        RankLost: on all ranks, where a rank or a newcomer is lost meanwhile; `shrink` goes on without.
    """
    return joined(grown(communicator._ranks, communicator._give_up, newcomers),
                  lambda comm, nodes: Communicator(comm, communicator.deadline, nodes, is_ours=True))


def come_in(newcomer: Newcomer) -> Communicator:
    """The same on the side of a newcomer, which leaves by itself where the ranks go on without it."""
    return joined(newcomer.come_in(), lambda comm, nodes: Communicator(comm, None, nodes, is_ours=True))
