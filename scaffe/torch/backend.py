"""The backend "scaffe" of torch.distributed: `init_process_group("scaffe")`, `new_group(backend="scaffe")`."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist

from scaffe.collectives import CommError, Communicator
from scaffe.torch.group import NAME, ScaffeGroup
from scaffe.torch.rendezvous import world


def register() -> None:
    """Makes the backend known to torch.distributed."""
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> ScaffeGroup:
    """What torch.distributed calls on each rank of a new group."""
    everyone, ranks = world(), list(options.global_ranks_in_group)
    is_world = not ranks or ranks == list(range(everyone.n_ranks))
    communicator = everyone if is_world else everyone.subset(ranks)
    n_ranks = 0 if communicator is None else communicator.n_ranks
    if communicator is None or (communicator.rank, n_ranks) != (options.group_rank, options.group_size):
        raise CommError(f"rank {everyone.rank}: a group of {options.group_size} ranks as torch.distributed has it, but "
                        f"{n_ranks} as MPI has it: start the ranks with mpirun, mpiexec or srun")
    if is_world:
        _end_together(everyone)
    return ScaffeGroup(communicator)


def _end_together(communicator: Communicator) -> None:
    """From now on an uncaught exception prints one line and ends the job on all ranks."""
    communicator.install_excepthook()
    inner = sys.excepthook

    def hook(*error: Any) -> None:
        if sys.__stderr__ is not None:
            sys.stderr = sys.__stderr__  # init_process_group's hook holds back what is said, until it is too late
        inner(*error)

    sys.excepthook = hook
