"""Rank 1 of a job may take few bytes more than it has once all is imported; `limited_rank.py BYTES train ...`.

The limit is the system's on a process's own data (RLIMIT_DATA).
"""

import os
import resource
import sys
from pathlib import Path

from scaffe.cli.commands import train


def limit(n_bytes):
    """Let this process take so many bytes more."""
    held = next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").read_text().splitlines()
                if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (held + n_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))


if __name__ == "__main__":
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1":
        limit(int(sys.argv[1]))
    sys.exit(train.main(sys.argv[2:]))
