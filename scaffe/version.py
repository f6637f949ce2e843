"""The version of scaffe, of the software that it runs on, and the processor."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import scaffe

CPU_INFO = Path("/proc/cpuinfo")
PACKAGES = ("numpy", "numba", "protobuf", "lmdb", "h5py", "mpi4py")


def describe() -> str:
    """``scaffe --version``: the version, the Python and packages it runs on, oneDNN and the MPI library."""
    from scaffe.collectives.launch import describe_mpi
    from scaffe.layers.kernels.cpu import describe as describe_kernels

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
