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
N_RUNS = {"each": 6, "more": 6, "nccl": 4, "masks": 0}
ELSEWHERE = pytest.mark.skipif(REAL, reason="in tests/gpu/test_ranks_nccl.py, which tells NCCL to share the card")


@pytest.mark.parametrize("parts", [
    pytest.param(["each"], id="each"), pytest.param(["nccl", "masks"], id="nccl", marks=ELSEWHERE),
    pytest.param(["more"], id="more", marks=pytest.mark.thorough),
    pytest.param(["masks"], id="masks", marks=pytest.mark.thorough)])
def test_two_ranks_on_a_device_train_as_on_the_cpu(parts):
    check(parts, SCAFFE_CUDA_IPC="1")


def check(parts, **environment):
    """Two ranks train in these ways, on the CPU and on a device."""
    result = job(2, [str(Path(__file__).with_name("device_worker.py")), *parts], **environment)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    found = json.loads(result.stdout)
    assert found["resumes"] == ([True] if "masks" in parts else [])
    assert len(found["fp16"]) == (3 if "masks" in parts else 0)
    for each in found["fp16"]:
        assert each["same"]
        assert each["calls"] == 0 < each["updates"]
        assert len(set(each["factors"])) == 1
        assert each["factors"][0] < 2**12
    assert len(found["rows"]) == sum(N_RUNS[part] for part in parts)
    for row in found["rows"]:
        assert row["device"]["same"], row["run"]
        for kind in ("weights", "histories"):
            np.testing.assert_allclose(row["device"][kind], row["cpu"][kind], rtol=1e-3, atol=1e-5,
                                       err_msg=str(row["run"]))
