"""A job: all ranks of one run, started at once by mpirun or srun; one process without them is a job of one rank."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable

from scaffe import environment, log
from scaffe.cli.affinity import bind, sleep_between_kernels
from scaffe.cli.main import fail
from scaffe.collectives import launch
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook, report_and_abort
from scaffe.errors import is_expected, one_line
from scaffe.nets.devices import Compute, make_context


def run_job(body: Callable[[Communicator], int], options: Namespace | None = None) -> int:
    """Run a command's body on every rank.

    An error that all ranks share is said once, by rank 0, or by the first rank left if that was lost; one that a rank
    has for itself, or shares with some, ends the job.

    Args:
        body: the command; it gets the communicator of all ranks and returns the exit code.
        options: the command's flags where it takes ``-gpu``.

    Returns:
        the exit code: the body's, or 1 after an expected error.
    """
    node_rank = launch.node_rank() if launch.has_launcher() else None
    if node_rank is not None:
        sleep_between_kernels()
    if options is not None and node_rank is not None:
        compute = Compute.of(options, node_rank)
        bound = bind(compute.gpus, node_rank)
        if bound and environment.SHOW_BINDING.get():
            print(bound, file=sys.stderr, flush=True)
        make_context(compute)
    communicator = Communicator.world()
    if communicator.rank != 0:
        log.silence(True)
    install_excepthook(communicator)
    try:
        return body(communicator)
    except Exception as error:
        if not is_expected(error):
            raise
        is_shared = getattr(error, "everywhere", False) and getattr(error, "rank_in_subset", None) is None
        if communicator.n_ranks > 1 and not is_shared:
            report_and_abort(communicator, error)
        return fail(one_line(error), 1, error, not log.is_silent())
