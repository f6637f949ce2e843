"""Part three of `make test-gpu-ranks`: messages straight from device memory, by an Open MPI over UCX from a wheel that
moves it (libucx-cu12 or -cu13), put in the place of the wheel's own."""

import pytest

from scaffe.cli.doctor import ucx
from scaffe.collectives.cuda import device
from tests.collectives.test_mpi import HERE, job

WHY = device.missing() or ("" if ucx.wheel() else "no UCX with CUDA (pip install libucx-cu12)")
pytestmark = [pytest.mark.mpi_job, pytest.mark.skipif(bool(WHY), reason=WHY)]


@pytest.mark.parametrize("n_ranks", [2, 3])
def test_messages_from_device_memory(n_ranks):
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", "-k", "aware", str(HERE / "device")],
                 timeout=80, SCAFFE_TEST_GPU="1", **ucx.settings(ucx.wheel()))
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    assert " passed" in result.stdout
