"""Two ranks under every strategy on a device train what they train on the CPU, however late the device works."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from scaffe.layers.kernels import device
from tests import pretend
from tests.collectives.test_mpi import job

REAL = bool(os.environ.get("SCAFFE_TEST_GPU"))
needs_device = pytest.mark.skipif(bool(device.missing()), reason=device.missing()) if REAL else pretend.needs_compiler
pytestmark = [pytest.mark.mpi_job, needs_device]


ELSEWHERE = pytest.mark.skipif(REAL, reason="in tests/gpu/test_ranks_nccl.py, which tells NCCL to share the card")


@pytest.mark.parametrize(("ipc", "parts"), [
    pytest.param("1", ["each"], id="ipc"), pytest.param("1", ["nccl"], id="nccl", marks=ELSEWHERE),
    pytest.param("1", ["more"], id="ipc, more", marks=pytest.mark.thorough),
    pytest.param("0", ["each", "more"], id="staged", marks=pytest.mark.thorough)])
def test_two_ranks_on_a_device_train_as_on_the_cpu(ipc, parts):
    check(parts, SCAFFE_CUDA_IPC=ipc)


def check(parts, **environment):
    """Two ranks train in these ways, on the CPU and on a device."""
    result = job(2, [str(Path(__file__).with_name("device_worker.py")), *parts], **environment)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    found = json.loads(result.stdout)
    assert found["resumes"]
    for each in found["fp16"]:
        assert each["same"]
        assert len(set(each["factors"])) == 1
        assert each["factors"][0] < 2**12
    assert len(found["rows"]) == sum(4 if part == "nccl" else 6 for part in parts)
    for row in found["rows"]:
        assert row["device"]["same"], row["run"]
        for kind in ("weights", "histories"):
            np.testing.assert_allclose(row["device"][kind], row["cpu"][kind], rtol=1e-3, atol=1e-5,
                                       err_msg=str(row["run"]))
