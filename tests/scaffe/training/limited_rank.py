"""Rank 1 of a job may take few bytes more than it has once all is imported: `limited_rank.py KIND BYTES train ...`.

KIND is `own`, for the system's limit on a process's own data (RLIMIT_DATA), or `shared`, for one of ours on each piece
of memory that ranks share.
"""

import errno
import os
import resource
import sys
from pathlib import Path

from scaffe.cli.commands import train
from scaffe.collectives.shared import window


def limit_own(n_bytes):
    """Let this process take so many bytes more."""
    held = next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").read_text().splitlines()
                if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (held + n_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def limit_shared(n_bytes):
    """Let this process share no piece of more bytes, as where the system has no room for one."""
    create = window.create

    def created(n_wanted):
        if n_wanted > n_bytes:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return create(n_wanted)

    window.create = created


if __name__ == "__main__":
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
        {"own": limit_own, "shared": limit_shared}[sys.argv[1]](int(sys.argv[2]))
    sys.exit(train.main(sys.argv[3:]))
