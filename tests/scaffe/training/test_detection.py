"""SSD in small learns to find drawn shapes: on one rank, on two with the same losses, and from a snapshot on."""

import re
import runpy

import pytest

from scaffe.cli.commands.convert_images import convert_annoset
from tests.scaffe.runs import ROOT, losses, run

pytest.importorskip("cv2", reason="needs opencv-python-headless<5")
pytestmark = pytest.mark.mpi_job  # all of them, so that one run on one rank serves all
EXAMPLE = ROOT / "examples" / "shapes"
CHANGES = {"max_iter": 60, "display": 1, "average_loss": 1, "test_interval": 15, "test_iter": 5, "snapshot": 15}


def here(name):
    """A file of the example's, with its paths from the test's folder on."""
    return (EXAMPLE / name).read_text().replace("examples/shapes/", "")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """The example's net, with 200 images to learn from and 50 to test on."""
    folder = tmp_path_factory.mktemp("shapes")
    draw = runpy.run_path(str(EXAMPLE / "draw.py"))["draw"]
    for name, n_images, seed in (("train", 200, 1), ("test", 50, 2)):
        draw(folder / name, n_images, seed)
        convert_annoset(["--anno_type=detection", f"--label_map_file={EXAMPLE / 'labelmap.prototxt'}", "--encoded",
                              f"{folder / name}/", str(folder / name / "list.txt"), str(folder / f"{name}_lmdb")])
    (folder / "ssd_train_test.prototxt").write_text(here("ssd_train_test.prototxt"))
    return folder


def train(folder, *args, n_ranks=1, **changes):
    """Train with some of the solver's numbers changed. Gives the log."""
    text = here("ssd_solver.prototxt")
    for name, value in {**CHANGES, **changes}.items():
        text = re.sub(rf"(?m)^{name}:.*\n", "", text) + f"{name}: {value}\n"
    solver = folder / f"solver{n_ranks}.prototxt"
    solver.write_text(text)
    done = run(folder, "train", "-solver", solver.name, *args, n_ranks=n_ranks, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def alone(shapes):
    """The log of 60 iterations on one rank."""
    return train(shapes)


def precisions(log):
    """The mean average precision of each test."""
    return [float(value) for value in re.findall(r"detection_eval = (\S+)", log)]


@pytest.mark.thorough
def test_it_learns(alone):
    found = precisions(alone)
    assert len(found) == 4
    assert found[-1] > max(0.4, 2 * found[0])
    by_class = [float(value) for value in re.findall(r"class[123]: (\S+)", alone)]
    assert sum(by_class[-3:]) / 3 == pytest.approx(found[-1], abs=1e-5)


def test_two_ranks_have_the_losses_of_one(shapes, alone):
    log = train(shapes, n_ranks=2, max_iter=15, snapshot_prefix='"two"')
    found = losses(log)
    assert sorted(found) == list(range(15))
    assert found == pytest.approx({i: losses(alone)[i] for i in found}, rel=1e-4)
    assert precisions(log)[0] == pytest.approx(precisions(alone)[0], abs=2e-3)


def test_the_command_test_scores_as_the_solver_does(shapes, alone):
    """The solver's last test was 11point, the command's is Integral: near each other, class by class."""
    done = run(shapes, "test", "-model", "ssd_train_test.prototxt", "-weights", "shapes_iter_60.caffemodel",
               "-iterations", "5")
    assert done.returncode == 0, done.stderr
    assert precisions(done.stderr)[-1] == pytest.approx(precisions(alone)[-1], abs=0.1)
    assert len(re.findall(r"class[123]: ", done.stderr)) == 3


def test_a_resumed_run_sees_the_same_crops(shapes, alone):
    log = train(shapes, "-snapshot", "shapes_iter_15.solverstate", max_iter=20, test_interval=100)
    assert {i: loss for i, loss in losses(log).items() if i >= 15} == {
        i: loss for i, loss in losses(alone).items() if 15 <= i < 20}
