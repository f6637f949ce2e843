"""A job: all ranks of one run, started at once by mpirun or srun; one process without them is a job of one rank."""

from __future__ import annotations

from collections.abc import Callable

from scaffe import log
from scaffe.cli.main import fail
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook, report_and_abort
from scaffe.errors import is_expected, one_line


def run_job(body: Callable[[Communicator], int]) -> int:
    """Run a command's body on every rank.

    An error that all ranks share is said once, by rank 0; one rank's own error is said by that rank and ends the job.

    Args:
        body: the command; it gets the communicator of all ranks and returns the exit code.

    Returns:
        the exit code: the body's, or 1 after an expected error.
    """
    communicator = Communicator.world()
    if communicator.rank != 0:
        log.silence(True)
    install_excepthook(communicator)
    try:
        return body(communicator)
    except Exception as error:
        if not is_expected(error):
            raise
        if communicator.n_ranks > 1 and not getattr(error, "everywhere", False):
            report_and_abort(communicator, error)
        return fail(one_line(error), 1, error)
