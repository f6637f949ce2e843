"""Become a rank of a run that trains.

A run with `-on_rank_loss replace` starts this command by itself for each rank that it has lost. By hand it cannot be
used: under Open MPI a process belongs to the mpirun that has started it, and cannot connect to another one's.
"""

from __future__ import annotations

from scaffe import log
from scaffe.collectives.fault_tolerance.joining import JoiningRank
from scaffe.errors import UserError
from scaffe.flags import Flags


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code.

    Raises:
        UserError: no run has started this process.
    """
    Flags("join", __doc__ or "").parse(argv)
    joining_rank = JoiningRank.of_this_process()  # before slow imports: the rank that started this one waits
    if joining_rank is None:
        raise UserError("join: no run has started this process, and none can be joined from outside; a run with "
                        "-on_rank_loss replace starts it by itself where the allocation has room")
    from scaffe.cli.commands import train

    log.silence(True)
    train.join(joining_rank)
    return 0
