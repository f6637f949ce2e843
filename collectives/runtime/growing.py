"""Ranks that take newcomers in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffe.collectives.errors import CommError
from scaffe.collectives.loss.bridge import bridged
from scaffe.collectives.loss.newcomers import Newcomers
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
