"""The tests of device buffers once more on a real GPU, which ranks share where there are more of them than GPUs."""

import json

import pytest

from scaffe.collectives.bench.options import CASES
from scaffe.collectives.bench.server import SAME_BYTES
from scaffe.collectives.cuda import device
from tests.collectives.test_mpi import HERE, job

pytestmark = [pytest.mark.mpi_job, pytest.mark.skipif(bool(device.missing()), reason=device.missing())]


@pytest.mark.parametrize(("n_ranks", "ranks_per_node"), [(2, 0), (3, 0), (4, 0), (5, 2)])
def test_device_buffers_on(n_ranks, ranks_per_node):
    result = job(n_ranks, ["-m", "pytest", "--with-mpi", "-x", "-q", "--color=no", str(HERE / "device")],
                 SCAFFE_RANKS_PER_NODE=str(ranks_per_node), SCAFFE_TEST_GPU="1")
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]


@pytest.mark.parametrize("case", CASES)
def test_benchmarks_verify_every_element(case, tmp_path):
    rows = tmp_path / "rows.json"
    by_parts = "reduce_scatter", "allgather", *SAME_BYTES  # the last ones beside what moves the same bytes
    names = "M,C,auto" if case not in by_parts or case == "clock" else "M,R,auto"
    flags = ["-memory", "device", "-m", "4:4194304", "-s", "64", "-a", names, "-i", "2", "-x", "1", "--json", str(rows)]
    result = job(2, ["-m", "scaffe", "bench", case, *flags])
    assert result.returncode == 0, result.stderr
    assert json.loads(rows.read_text())


def test_nccl_works_or_says_why_not():
    cupy = device.load()
    result = job(2, ["-m", "scaffe", "bench", "allreduce", "-memory", "device", "-m", "4096:4096",
                     "-a", "nccl", "-i", "2"])
    if cupy.cuda.runtime.getDeviceCount() >= 2 and "NCCL cannot be loaded" not in result.stderr:
        assert result.returncode == 0, result.stderr
    else:
        assert "NCCL" in result.stderr
        assert result.returncode != 0
