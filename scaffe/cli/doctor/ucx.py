"""Whether messages leave from device memory, and how an Open MPI without CUDA is made to: it runs over any UCX that is
loaded before its own, and the wheels libucx-cu12 and libucx-cu13 have one that moves device memory."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from scaffe.cli.doctor.machine import ABSENT, FINE, SLOWER, Finding
from scaffe.environment import CUDA_AWARE

LIBRARIES = ("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0")
"""Each needs those before it."""
ANYWHERE = {"OMPI_MCA_opal_common_ucx_tls": "any", "OMPI_MCA_opal_common_ucx_devices": "any"}
"""Without these Open MPI takes UCX on InfiniBand alone, and a job elsewhere ends in MPI_Init."""
WHEEL = "pip install libucx-cu12  # libucx-cu13 with CUDA 13; then doctor says what to export"


def wheel() -> Path | None:
    """The folder of the wheel's libraries; None without a wheel that moves device memory."""
    spec = importlib.util.find_spec("libucx")
    folder = Path(spec.origin).parent / "lib" if spec and spec.origin else None
    return folder if folder is not None and list(folder.glob("ucx/libuct_cuda.so*")) else None


def settings(folder: Path) -> dict[str, str]:
    """The variables by which all ranks' Open MPI sends by the UCX in a folder, and this program believes it: built
    without CUDA, the library itself answers no."""
    return {"LD_PRELOAD": ":".join(str(folder / name) for name in LIBRARIES), "UCX_MODULE_DIR": str(folder / "ucx"),
            "OMPI_MCA_pml": "ucx", **ANYWHERE, CUDA_AWARE.name: "1"}


def judge(is_aware: bool, why: str, is_open_mpi: bool, folder: Path | None) -> Finding:
    """Judge what an MPI says of device memory.

    Args:
        is_aware, why: its answer, and the grounds.
        is_open_mpi: whether it is Open MPI.
        folder: the wheel's.
    """
    if is_aware:
        return Finding(FINE, "messages", f"leave from device memory: {why}")
    said = f"leave GPUs through host memory, since the MPI is not CUDA-aware: {why}"
    if not is_open_mpi:
        return Finding(SLOWER, "messages", said)
    if folder is None:
        return Finding(ABSENT, "messages", said, WHEEL)
    exports = " ".join(f"{name}={value}" for name, value in settings(folder).items())
    return Finding(SLOWER, "messages", f"{said}; Open MPI does not use the UCX in {folder}", f"export {exports}")
