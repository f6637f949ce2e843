"""Communicators that grow: ranks take newcomers in, which one of them has started (`collectives.loss.newcomers`)."""

from __future__ import annotations

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.loss.losses import joined
from scaffe.collectives.loss.newcomer import Newcomer
from scaffe.collectives.loss.newcomers import Newcomers
from scaffe.collectives.runtime.growing import grown


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
