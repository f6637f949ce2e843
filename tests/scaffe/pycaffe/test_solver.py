"""``import scaffe as caffe``: solvers as pycaffe shows them."""

import os
import subprocess
import sys

import numpy as np
import pytest

import scaffe as caffe
from scaffe.cli import main as cli
from tests.mpirun import mpirun
from tests.scaffe.pycaffe.pycaffe_nets import LEARNING
from tests.scaffe.runs import ROOT

SOLVER = """net: "{folder}/net.prototxt" base_lr: 0.1 momentum: 0.9 weight_decay: 0.01 lr_policy: "step"
stepsize: 4 gamma: 0.5 test_iter: 2 test_interval: 100 max_iter: 6 random_seed: 5
snapshot_prefix: "{folder}/run" snapshot_after_train: false
"""


@pytest.fixture
def solver_file(tmp_path):
    (tmp_path / "net.prototxt").write_text(LEARNING)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(folder=tmp_path))
    return str(tmp_path / "solver.prototxt")


def weights(solver):
    return solver.net.params["ip"][0].data


def test_step_by_step_is_solve(solver_file):
    one = caffe.SGDSolver(solver_file)
    assert len(one.test_nets) == 1
    one.step(2)
    assert (one.iter, one.lr) == (2, pytest.approx(0.1))
    one.step(4)
    assert one.lr == pytest.approx(0.05)
    other = caffe.get_solver(solver_file)  # seeds the process's one stream anew
    assert type(other) is caffe.SGDSolver
    other.solve()
    assert (one.iter, other.iter) == (6, 6)
    np.testing.assert_array_equal(weights(one), weights(other))


def test_test_nets_use_the_trained_weights(solver_file):
    solver = caffe.SGDSolver(solver_file)
    solver.step(30)
    assert solver.test_nets[0].forward()["accuracy"] == 1  # the label is always 2
    assert (solver.test_nets[0].params["ip"][0].data == weights(solver)).all()


def test_an_update_by_hand(solver_file):
    solver = caffe.SGDSolver(solver_file)
    data = weights(solver)
    before = data.copy()
    solver.net.clear_param_diffs()
    solver.net.params["ip"][0].diff[...] = 2
    solver.apply_update()
    np.testing.assert_allclose(data, before - 0.1 * (2 + 0.01 * before), rtol=1e-6)
    assert solver.iter == 1  # as in Caffe, whose count is that of the updates
    solver.param.base_lr = 0.0
    solver.apply_update()  # momentum alone moves on
    np.testing.assert_allclose(data, before - 0.19 * (2 + 0.01 * before), rtol=1e-5)


def test_snapshot_and_restore(solver_file, tmp_path):
    solver = caffe.SGDSolver(solver_file)
    solver.step(3)
    solver.snapshot()
    assert (tmp_path / "run_iter_3.caffemodel").is_file()
    solver.step(3)
    again = caffe.SGDSolver(solver_file)
    again.solve(str(tmp_path / "run_iter_3.solverstate"))
    assert again.iter == 6
    np.testing.assert_array_equal(weights(again), weights(solver))


def test_the_solver_may_name_weights_to_start_from(solver_file, tmp_path):
    solver = caffe.SGDSolver(solver_file)
    weights(solver)[...] = 7
    solver.net.save(str(tmp_path / "w.caffemodel"))
    with (tmp_path / "solver.prototxt").open("a") as file:
        file.write(f'weights: "{tmp_path}/w.caffemodel"\n')
    assert (weights(caffe.SGDSolver(solver_file)) == 7).all()
    assert cli.main(["train", "-solver", solver_file]) == 0
    with (tmp_path / "solver.prototxt").open("a") as file:
        file.write('weights: "none.caffemodel"\n')
    assert cli.main(["train", "-solver", solver_file]) == 1


def test_a_state_in_hdf5_is_found_without_its_ending(solver_file, tmp_path):
    with (tmp_path / "solver.prototxt").open("a") as file:
        file.write("snapshot_format: HDF5\n")
    solver = caffe.SGDSolver(solver_file)
    solver.step(3)
    solver.snapshot()
    solver.step(3)
    again = caffe.SGDSolver(solver_file)
    again.solve(str(tmp_path / "run_iter_3.solverstate"))
    np.testing.assert_array_equal(weights(again), weights(solver))


def test_callbacks(solver_file):
    solver, seen = caffe.SGDSolver(solver_file), []
    solver.add_callback(lambda: seen.append(("start", solver.iter)),
                        lambda: seen.append(("ready", float(np.abs(solver.net.params["ip"][0].diff).sum()) > 0)))
    solver.step(2)
    assert seen == [("start", 0), ("ready", True), ("start", 1), ("ready", True)]


def test_a_callback_may_change_gradients(solver_file):
    solver = caffe.SGDSolver(solver_file)
    before = weights(solver).copy()

    def stop_learning():
        solver.net.params["ip"][0].diff[...] = -0.01 * weights(solver)  # what the decay adds

    solver.add_callback(lambda: None, stop_learning)
    solver.step(3)
    np.testing.assert_allclose(weights(solver), before, rtol=1e-6)


def test_nets_outlive_their_solver(solver_file):
    solver = caffe.SGDSolver(solver_file)
    solver.step(1)
    net = solver.net
    del solver
    assert np.isfinite(net.params["ip"][0].data.sum())
    assert np.isfinite(net.forward()["loss"])


@pytest.mark.parametrize("name", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_the_class_says_the_rule(solver_file, name, tmp_path):
    text = (tmp_path / "solver.prototxt").read_text()
    for field in ("momentum: 0.9", "weight_decay: 0.01") if name in ("AdaGrad", "RMSProp") else ():
        text = text.replace(field, "")
    (tmp_path / "solver.prototxt").write_text(text)
    solver = getattr(caffe, f"{name}Solver")(solver_file)
    before = weights(solver).copy()
    solver.step(2)
    assert solver.param.type == name
    assert not (weights(solver) == before).all()


def test_mistakes_are_one_line(solver_file, tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        caffe.SGDSolver(str(tmp_path / "none.prototxt"))
    (tmp_path / "solver.prototxt").write_text('lr_policy: "fixed"')
    with pytest.raises(ValueError, match="the solver must give one of net"):
        caffe.SGDSolver(solver_file)
    with pytest.raises(AttributeError, match="'scaffe' has no attribute 'SGDSolvr'"):
        _ = caffe.SGDSolvr


@pytest.mark.mpi_job
def test_ranks_train_together(databases, tmp_path):
    """A script with a solver under mpirun: two ranks share the batch and reach one rank's weights."""
    (tmp_path / "net.prototxt").write_text(
        f'layer {{ name: "d" type: "Data" top: "data" top: "label" data_param {{ source: "{databases / "train"}" '
        'batch_size: 20 backend: LMDB } transform_param { scale: 0.004 } }'
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 '
        'weight_filler { type: "xavier" } } }'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }')
    (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" '
                                              f'max_iter: 3 random_seed: 5 snapshot_prefix: "{tmp_path}/run"')
    script = (f"import scaffe as caffe; s = caffe.get_solver('{tmp_path}/solver.prototxt'); s.step(3); "
              f"s.net.save('{tmp_path}/' + __import__('os').environ['OMPI_COMM_WORLD_RANK'])")
    done = subprocess.run([*mpirun(2), sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    alone = caffe.get_solver(str(tmp_path / "solver.prototxt"))
    alone.step(3)
    for rank in ("0", "1"):
        net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN, weights=str(tmp_path / rank))
        np.testing.assert_allclose(net.params["ip"][0].data, weights(alone), rtol=1e-4, atol=1e-6)


def test_the_log_starts_at_a_level(solver_file, capfd):
    try:
        for level, stderr, lines in ((0, True, 2), (1, True, 1), (2, True, 0), (0, False, 0)):
            caffe.init_log(level, stderr)
            capfd.readouterr()
            caffe.log("a line")
            caffe.log.warning("a warning")
            assert len(capfd.readouterr().err.splitlines()) == lines
    finally:
        caffe.init_log(0)


def test_users_layers_that_import_caffe_run_as_they_are(tmp_path):
    """Through the command: nothing but the program's name changes, the module says ``import caffe``."""
    (tmp_path / "mine.py").write_text("import caffe\nfrom caffe.proto import caffe_pb2\n"
                                      "class Twice(caffe.Layer):\n"
                                      "    def setup(self, bottom, top): pass\n"
                                      "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)\n"
                                      "    def forward(self, b, t): t[0].data[...] = 2 * b[0].data\n"
                                      "    def backward(self, t, down, b): b[0].diff[...] = 2 * t[0].diff\n")
    text = LEARNING.replace('bottom: "data" top: "ip"', 'bottom: "twice" top: "ip"', 1)
    python = ('layer { name: "twice" type: "Python" bottom: "data" top: "twice" '
              'python_param { module: "mine" layer: "Twice" } }\n')
    at = text.index('layer { name: "ip"')
    (tmp_path / "net.prototxt").write_text(text[:at] + python + text[at:])
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 2 '
                                              'test_iter: 1 test_interval: 2 snapshot_prefix: "run"')
    done = subprocess.run([sys.executable, "-m", "scaffe", "train", "-solver", "solver.prototxt"], cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
