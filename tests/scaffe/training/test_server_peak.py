"""What a rank that is a server alone has in memory, whose tables do not fit its limit."""

import subprocess
import sys

import pytest

from tests.mpirun import mpirun

N_LAYERS, WIDTH = 6, 2048  # 96 MiB of weights, with a history and two workers' updates 384
LIMIT = 100_000_000
LAYER = """layer {{ name: "ip{0}" type: "InnerProduct" bottom: "x{0}" top: "x{1}"
  inner_product_param {{ num_output: {2} bias_term: false weight_filler {{ type: "xavier" }} }} }}"""


def net(width):
    shapes = f"shape {{ dim: 8 dim: {width} }} shape {{ dim: 8 }}"
    return "\n".join([
        f'layer {{ name: "in" type: "DummyData" top: "x0" top: "label" dummy_data_param {{ {shapes} '
        'data_filler { type: "gaussian" } data_filler { type: "constant" } } }',
        *(LAYER.format(i, i + 1, width) for i in range(N_LAYERS)),
        f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "x{N_LAYERS}" bottom: "label" top: "loss" }}'])


def peaks(folder, width):
    """Bytes of each rank: two workers and the server."""
    folder.mkdir()
    (folder / "net.prototxt").write_text(net(width))
    (folder / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 1e-4 momentum: 0.9 lr_policy: "fixed" max_iter: 4 snapshot_after_train: false')
    done = subprocess.run(
        [*mpirun(3), sys.executable, "-m", "tests.scaffe.training.peak_of_rank", str(folder), "-solver",
         str(folder / "solver.prototxt"), "-strategy", "ssp", "-slack", "1", "-servers", "1", "-threads", "1",
         "-memory", str(LIMIT), "-spill", str(folder)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [int((folder / f"peak.{rank}").read_text()) << 10 for rank in range(3)], done.stderr


@pytest.mark.mpi_job
@pytest.mark.thorough
def test_a_server_keeps_to_the_limit_whose_tables_are_larger(tmp_path):
    """Beside what the same job takes with tables of a 64th."""
    small, _ = peaks(tmp_path / "small", WIDTH // 8)
    large, log = peaks(tmp_path / "large", WIDTH)
    for before, peak in zip(small, large, strict=True):
        assert peak - before <= 1.05 * LIMIT, (small, large, log[-3000:])
    assert large[2] - small[2] <= 1 << 24  # of the server's, whose tables are 384 MiB
