"""Our collectives for PyTorch programs: a hook for DistributedDataParallel, and a backend of torch.distributed.

    import scaffe.torch
    torch.distributed.init_process_group("scaffe")

under `mpirun`, or `model.register_comm_hook(None, scaffe.torch.ddp_hook(communicator))` beside any other backend. Needs
PyTorch 2.4 or later. Importing it registers the backend and, in a rank of an MPI job, starts MPI to tell PyTorch where
the ranks meet (`scaffe.torch.rendezvous`). docs/pytorch.md.
"""

from scaffe.torch import group, rendezvous
from scaffe.torch.hook import ddp_hook
from scaffe.torch.rendezvous import empty

__all__ = ["ddp_hook", "empty"]

group.register()
rendezvous.announce()
