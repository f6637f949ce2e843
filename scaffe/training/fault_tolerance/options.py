"""The flags that say what happens when ranks are lost."""

from __future__ import annotations

from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.fault_tolerance import ulfm
from scaffe.errors import UserError
from scaffe.flags import Flags, whole

STOP, SHRINK, REPLACE = "stop", "shrink", "replace"


def add_flags(flags: Flags) -> None:
    """Add ``-on_rank_loss`` and ``-history_copies``."""
    flags.flag("on_rank_loss", STOP, "shrink: the others go on; replace: new ones come",
               choices=(STOP, SHRINK, REPLACE), metavar="WHAT")
    flags.flag("history_copies", 1, "copies of histories; 0: snapshots", kind=whole(0, 1))


def check(options: Any, strategy: Any, communicator: Communicator) -> None:
    """Check that this job can continue when a rank is lost, if it is to. Called by all ranks.
    Raises UserError on all ranks if this job's MPI or the strategy ends with a lost rank."""
    if options.on_rank_loss == STOP or communicator.n_ranks == 1:
        return
    fault = ulfm.fault()
    if options.on_rank_loss == REPLACE:
        fault = fault or strategy.fault_tolerance_type.why_no_replacement(options)
    if fault := fault or strategy.fault_tolerance_type.why_not_fault_tolerant:
        raise UserError(f"-on_rank_loss {options.on_rank_loss} cannot be had: {fault}", everywhere=True)


def tolerates_rank_loss(options: Any) -> bool:
    """Whether the options ask training to continue when ranks are lost."""
    return bool(getattr(options, "on_rank_loss", "stop") != "stop")


def keeps_copies(options: Any) -> bool:
    """Whether the options ask for second copies."""
    return tolerates_rank_loss(options) and bool(getattr(options, "history_copies", 0))
