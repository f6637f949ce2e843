"""Every solver on linear regression, on 1, 2 and 4 ranks, against its formulas in closed form: histories and all.

The same jobs train a net of nearly every layer, which must come out as it does in one process.
"""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from google.protobuf import text_format

import scaffe as caffe
from scaffe.files import read_model, read_state
from scaffe.proto import caffe_pb2
from tests.mpirun import mpirun
from tests.reference.update_rules import least_squares
from tests.scaffe import many_layers
from tests.scaffe.runs import ROOT

pytestmark = pytest.mark.mpi_job
N_ROWS, BATCH, N_STEPS = 60, 12, 9  # rows come round again in the sixth step
MULTS = ((1, 1), (2, 0.5))
NET = f"""layer {{ name: "rows" type: "HDF5Data" top: "x" top: "y"
  hdf5_data_param {{ source: "rows.txt" batch_size: {BATCH} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: 2 }}
  param {{ lr_mult: {MULTS[0][0]} decay_mult: {MULTS[0][1]} }}
  param {{ lr_mult: {MULTS[1][0]} decay_mult: {MULTS[1][1]} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }}"""
RULES = {  # momentum and what else the rule takes
    "SGD": "momentum: 0.9", "Nesterov": "momentum: 0.9", "AdaGrad": "delta: 0.01",
    "RMSProp": "rms_decay: 0.9 delta: 0.01", "AdaDelta": "momentum: 0.95 delta: 0.001",
    "Adam": "momentum: 0.9 momentum2: 0.99 delta: 0.001"}
SETTINGS = {  # decay, accumulation and clipping; the seven policies
    "plain": 'lr_policy: "fixed"',
    "l2_step": 'lr_policy: "step" gamma: 0.5 stepsize: 4 weight_decay: 0.1',
    "l1_exp": 'lr_policy: "exp" gamma: 0.9 weight_decay: 0.05 regularization_type: "L1"',
    "iter_size_inv": 'lr_policy: "inv" gamma: 0.1 power: 0.75 iter_size: 3 weight_decay: 0.1',
    "clip_multistep": 'lr_policy: "multistep" gamma: 0.3 stepvalue: 2 stepvalue: 7 clip_gradients: 0.5',
    "all_poly": 'lr_policy: "poly" power: 2 weight_decay: 0.1 clip_gradients: 1 iter_size: 2 snapshot_format: HDF5',
    "sigmoid": 'lr_policy: "sigmoid" gamma: 0.5 stepsize: 5 snapshot_format: HDF5'}
CASES = {f"{rule}_{name}": f'type: "{rule}" {RULES[rule]} {text} base_lr: {1 if rule == "AdaDelta" else 0.05} '
                           f'max_iter: {N_STEPS} random_seed: 3 net: "net.prototxt" display: 0 '
         for rule in RULES for name, text in SETTINGS.items()}


def rows() -> tuple[np.ndarray, np.ndarray]:
    """A regression whose columns have different scales, with noise."""
    rng = np.random.RandomState(11)
    x = rng.randn(N_ROWS, 5) * [1, 2, 0.5, 1, 0.1]
    y = x @ rng.randn(5, 2) + [3, -1] + 0.1 * rng.randn(N_ROWS, 2)
    return x.astype(np.float32), y.astype(np.float32)


@pytest.fixture(scope="module", params=[1, 2, pytest.param(4, marks=pytest.mark.thorough)])
def trained(request, tmp_path_factory):
    """The folder of one job that trained all cases on that many ranks."""
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"], file["y"] = rows()
    (folder / "rows.txt").write_text("rows.h5\n")
    (folder / "net.prototxt").write_text(NET)
    for name, text in CASES.items():
        (folder / f"solver_{name}.prototxt").write_text(f'{text} snapshot_prefix: "{name}"')
    write_many_layers(folder)
    done = subprocess.run([*mpirun(request.param), "-x", f"PYTHONPATH={ROOT}", sys.executable,
                           str(Path(__file__).with_name("least_squares_worker.py")), str(folder)],
                          cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.parametrize("case", CASES)
def test_solver_follows_the_closed_form(trained, case):
    param = text_format.Parse(CASES[case], caffe_pb2.SolverParameter())
    x, y = (a.astype(np.float64) for a in rows())
    ending = ".h5" if "HDF5" in CASES[case] else ""
    model = read_model(trained / f"{case}_iter_{N_STEPS}.caffemodel{ending}")
    weights = {name: arrays for name, _, arrays in model}["ip"]
    state = read_state(trained / f"{case}_iter_{N_STEPS}.solverstate{ending}")
    assert state.iteration == N_STEPS
    wanted = least_squares(param, x, y, BATCH, N_STEPS, MULTS)
    n_histories = 2 if param.type in ("AdaDelta", "Adam") else 1
    assert len(state.history) == 2 * n_histories
    for index, (w, *histories) in enumerate(wanted):
        close(weights[index], w)
        for k in range(n_histories):
            close(state.history[2 * k + index], histories[k])


def write_many_layers(folder: Path) -> None:
    """The net of many layers, its solver and its data."""
    with h5py.File(folder / "records.h5", "w") as file:
        for name, array in many_layers.records().items():
            file[name] = array.astype(np.float32)
    (folder / "records.txt").write_text("records.h5\n")
    (folder / "many.prototxt").write_text(many_layers.net())
    (folder / "solver_many.prototxt").write_text(many_layers.SOLVER)


@pytest.fixture(scope="module")
def many_in_one_process(tmp_path_factory):
    """Weights before and after, trained here."""
    folder = tmp_path_factory.mktemp("many")
    write_many_layers(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        solver = caffe.get_solver("solver_many.prototxt")
        before = {name: [blob.data.copy() for blob in blobs] for name, blobs in solver.net.params.items()}
        solver.solve()
        return before, {name: [blob.data.copy() for blob in blobs] for name, blobs in solver.net.params.items()}


def test_every_layer_on_any_number_of_ranks(trained, many_in_one_process):
    before, after = many_in_one_process
    model = read_model(trained / f"many_iter_{many_layers.N_STEPS}.caffemodel")
    found = {name: arrays for name, _, arrays in model if arrays}
    assert found.keys() == after.keys()
    for name, arrays in after.items():
        for first, last, array in zip(before[name], arrays, found[name], strict=True):
            assert np.abs(last - first).max() > 1e-5, f"{name} learned nothing"
            np.testing.assert_allclose(array, last, rtol=1e-3, atol=2e-5, err_msg=name)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert np.abs(wanted).max() > 1e-6  # something was learned
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
