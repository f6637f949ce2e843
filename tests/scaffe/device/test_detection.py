"""SSD in small on a device: its losses and its evaluation beside the CPU's. Pretend CuPy, or a card."""

import re
from argparse import Namespace

import pytest

from scaffe.collectives.communicator import Communicator
from scaffe.nets import graph
from scaffe.training.assembly import build_solver
from scaffe.training.observers.test import detected
from tests.data.annotated import database
from tests.scaffe.device.test_training import late, needs_device, on_device  # noqa: F401 - a fixture
from tests.scaffe.runs import ROOT

EXAMPLE = ROOT / "examples" / "shapes"
SOLVER = 'net: "net.prototxt" base_lr: 1e-3 lr_policy: "fixed" momentum: 0.9 max_iter: 3 random_seed: 5 ' \
         'test_iter: 2 test_interval: 9 eval_type: "detection" snapshot_prefix: "run"'


def trained(gpu: str) -> tuple[list[float], float]:
    """The losses of three iterations, and the mean average precision after them."""
    options = Namespace(strategy="auto", reduce="auto", wire="", bucket="auto", scal="strong", threads=1, readers=1,
                        level=0, stage="", gpu=gpu, precision="fp32", tf32="off", allow_nan=False, skip_bad_records=0)
    solver, losses = build_solver(Communicator.world(), graph.read_solver("solver.prototxt"), options), []
    iterate = solver.strategy.iterate
    solver.strategy.iterate = lambda *given: losses.append(iterate(*given)) or losses[-1]
    solver.strategy.begin()
    solver.step(3)
    solver.strategy.synchronize_parameters()
    _, (said,), _ = detected(solver, solver.test_nets[0], 2)
    for net in (solver.net, *solver.test_nets):
        net.close()
    return [float(loss) for loss in losses], float(re.search(r"detection_eval = (\S+)", said)[1])


@needs_device
def test_a_device_learns_and_detects_as_the_cpu_does(on_device, tmp_path):  # noqa: F811
    pytest.importorskip("cv2", reason="needs opencv-python-headless<5")
    database(tmp_path / "db", n=7)
    text = re.sub(r"examples/shapes/\w+_lmdb", "db", (EXAMPLE / "ssd_train_test.prototxt").read_text())
    (tmp_path / "net.prototxt").write_text(re.sub(r"batch_size: \d+", "batch_size: 2", text))
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    expected, precision = trained("")
    with late():
        found, on_card = trained("all")
    assert found == pytest.approx(expected, rel=1e-4)
    assert on_card == pytest.approx(precision, abs=0.05)
