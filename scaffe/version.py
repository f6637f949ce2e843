"""The versions of scaffe and of the software it runs on, the processor, and a log's lines about them."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from google.protobuf import text_format

import scaffe
from scaffe.collectives.launch import describe_mpi
from scaffe.layers.kernels.cpu import describe as describe_kernels
from scaffe.log import info

CPU_INFO = Path("/proc/cpuinfo")
PACKAGES = ("numpy", "numba", "protobuf", "lmdb", "h5py", "mpi4py")


def describe() -> str:
    """``scaffe --version``: the version, the Python and packages it runs on, oneDNN and the MPI library."""
    return "\n".join([f"scaffe {scaffe.__version__}", f"Python {platform.python_version()}, {packages()}",
                      describe_kernels(), describe_mpi()])


def packages() -> str:
    """The packages it runs on, each with its version."""
    return ", ".join(f"{name} {_version(name)}" for name in PACKAGES)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def processor_name() -> str:
    """The processor's name as Linux has it; empty if it has none."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def log_notes(param: Any, n_ranks: int) -> None:
    """Log a run's settings, command, versions and machine, a line each, which ``scaffe report`` reads.

    The MPI library is named if several ranks train.
    """
    settings = text_format.MessageToString(param, as_one_line=True, as_utf8=True)
    info(f"Settings: {settings}")
    info(f"Command: {shlex.join(sys.argv[1:])}")
    versions = [f"scaffe {scaffe.__version__}", f"Python {platform.python_version()}", packages(), describe_kernels()]
    info(f"Versions: {', '.join(versions + ([describe_mpi()] if n_ranks > 1 else []))}")
    processor = processor_name() or platform.machine()
    info(f"Machine: {socket.gethostname()}, {processor}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, "
         f"{platform.system()} {platform.release()}")
