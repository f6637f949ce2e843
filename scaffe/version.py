"""The version of scaffe and of the software it runs on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import scaffe

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
