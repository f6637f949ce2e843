"""What a run's log notes about itself: settings, command, versions and machine, a line each (``scaffe report``)."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import sys
from typing import Any

from google.protobuf import text_format

import scaffe
from scaffe.collectives.launch import describe_mpi
from scaffe.layers.kernels.cpu import describe as describe_kernels
from scaffe.log import info
from scaffe.version import packages, processor_name


def log_notes(param: Any, n_ranks: int) -> None:
    """Log the four lines.

    Args:
        param: the SolverParameter message that the run goes by.
        n_ranks: how many train; the MPI library is named where there are several.
    """
    settings = text_format.MessageToString(param, as_one_line=True, as_utf8=True)
    info(f"Settings: {settings}")
    info(f"Command: {shlex.join(sys.argv[1:])}")
    versions = [f"scaffe {scaffe.__version__}", f"Python {platform.python_version()}", packages(), describe_kernels()]
    info(f"Versions: {', '.join(versions + ([describe_mpi()] if n_ranks > 1 else []))}")
    processor = processor_name() or platform.machine()
    info(f"Machine: {socket.gethostname()}, {processor}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, "
         f"{platform.system()} {platform.release()}")
