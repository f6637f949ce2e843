"""Part three of `make test-gpu-ranks`: messages straight from device memory, by an Open MPI over UCX from a wheel that
moves it (libucx-cu12 or -cu13), put in the place of the wheel's own."""

import importlib.util
from pathlib import Path

import pytest

from scaffe.collectives.cuda import device
from tests.collectives.test_mpi import HERE, job

LIBRARIES = ("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0")


def ucx():
    """The folder of the wheel's libraries; None without it."""
    spec = importlib.util.find_spec("libucx")
    folder = Path(spec.origin).parent / "lib" if spec and spec.origin else None
    return folder if folder is not None and list(folder.glob("ucx/libuct_cuda.so*")) else None


FOLDER = ucx()
WHY = device.missing() or ("" if FOLDER else "no UCX with CUDA (pip install libucx-cu12)")
pytestmark = [pytest.mark.mpi_job, pytest.mark.skipif(bool(WHY), reason=WHY)]


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_messages_from_device_memory(n_ranks):
    preloaded = ":".join(str(FOLDER / name) for name in LIBRARIES)
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", "-k", "aware", str(HERE / "device")],
                 timeout=80, LD_PRELOAD=preloaded, UCX_MODULE_DIR=str(FOLDER / "ucx"), OMPI_MCA_pml="ucx",
                 SCAFFE_CUDA_AWARE="1", SCAFFE_TEST_GPU="1")
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    assert " passed" in result.stdout
