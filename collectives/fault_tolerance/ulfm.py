"""User-level failure mitigation (ULFM): whether this job's MPI lets ranks go on when one of them is lost.

Revoke, Shrink and Get_failed are calls of the MPI Forum's proposal ULFM (fault-tolerance.org), which Open MPI 5 has
where its launcher was given `--with-ft ulfm`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from scaffe.collectives.errors import CommError

VARIABLE = "OMPI_MCA_mpi_ft_enable"
"""What `mpirun --with-ft ulfm` sets for its ranks; under srun it is the user who sets it."""
COLLECTIVES = ("OMPI_MCA_coll", "^han")
"""Open MPI's component HAN loses messages among ranks that were not started together (5.0.11)."""
HOW = "mpirun --with-ft ulfm (Open MPI 5)"


def is_asked_for(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the launcher was told that ranks may be lost."""
    return environment.get(VARIABLE, "").lower() in ("1", "true", "yes", "enabled")


def fault() -> str:
    """Says why this job cannot go on without a lost rank; empty where it can."""
    from mpi4py import MPI

    vendor, version = MPI.get_vendor()
    if vendor != "Open MPI" or version < (5,):
        return f"{vendor} {'.'.join(map(str, version))} ends a job when a rank is lost; {HOW} goes on"
    if not is_asked_for():
        return f"the job was started without fault tolerance, which {HOW} has"
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return "MPI does not grant MPI_THREAD_MULTIPLE, which the watch over lost ranks needs"
    return ""


def may_be_loss(error: BaseException) -> bool:
    """Whether a loss may have caused an exception, though MPI does not say so; the notification may come later.

    It may have caused an error of one of several messages, one that MPI has no class for, and objects that cannot be
    unpickled: Open MPI's MPI_Allgather may return incomplete data without an error. Errors that this package raises
    have other causes.
    """
    return not isinstance(error, CommError)


def is_loss(error: BaseException) -> bool:
    """Whether an exception of MPI reports a lost rank, or a communicator that another rank has revoked."""
    from mpi4py import MPI

    return isinstance(error, MPI.Exception) and error.Get_error_class() in (
        MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)
