"""What snapshots hold beyond weights: diffs where the solver asks, shared parameters once, frozen ones' histories."""

import dataclasses
import os
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

import scaffe as caffe
from scaffe.cli import main as cli
from scaffe.files import read_state, write_state
from scaffe.proto import caffe_pb2
from scaffe.training.checkpoint import whole_parameters

NET = """layer { name: "in" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 6 dim: 4 } shape { dim: 6 dim: 4 } data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
layer { name: "first" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 4 weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "again" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" } param { lr_mult: 0 decay_mult: 2 }
  inner_product_param { num_output: 4 bias_filler { type: "constant" value: 0.5 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "b" bottom: "y" top: "loss" }"""


def solver(folder, text=""):
    (folder / "net.prototxt").write_text(NET)
    path = folder / "solver.prototxt"
    path.write_text(f'net: "{folder}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" weight_decay: 0.01 random_seed: 4 '
                    f'snapshot_prefix: "{folder}/run" {text}')
    return caffe.get_solver(str(path))


def weights(net):
    return {(name, i): blob.data.copy() for name, blobs in net.params.items() for i, blob in enumerate(blobs)}


@pytest.fixture(params=["BINARYPROTO", "HDF5"])
def run(request, tmp_path):
    """A solver with momentum after two steps and a snapshot with diffs, and the weights ahead of the last step."""
    made = solver(tmp_path, f'momentum: 0.9 snapshot_diff: true snapshot_format: {request.param}')
    made.step(1)
    before = weights(made.net)
    made.step(1)
    made.snapshot()
    return tmp_path, made, before


def stored_diffs(folder):
    """(layer, index) → the diff in the snapshot, read by other libraries."""
    if (folder / "run_iter_2.caffemodel.h5").exists():
        with h5py.File(folder / "run_iter_2.caffemodel.h5") as file:
            return {(name, int(i)): np.array(d) for name, group in file["diff"].items() for i, d in group.items()}
    net = caffe_pb2.NetParameter.FromString((folder / "run_iter_2.caffemodel").read_bytes())
    return {(layer.name, i): np.reshape(blob.diff, blob.shape.dim)
            for layer in net.layer for i, blob in enumerate(layer.blobs)}


def test_diffs_hold_the_last_step(run):
    folder, made, before = run
    diffs = stored_diffs(folder)
    assert diffs.keys() == before.keys()
    for key, value in weights(made.net).items():
        np.testing.assert_allclose(diffs[key], before[key] - value, atol=1e-6)
    assert np.abs(diffs["again", 0]).max() > 1e-3


def test_weights_load_again(run):
    folder, made, _ = run
    ending = ".h5" if (folder / "run_iter_2.caffemodel.h5").exists() else ""
    net = caffe.Net(str(folder / "net.prototxt"), caffe.TRAIN, weights=str(folder / f"run_iter_2.caffemodel{ending}"))
    for key, value in weights(net).items():
        np.testing.assert_array_equal(value, weights(made.net)[key])


def test_hdf5_keeps_shared_values_with_their_owner(tmp_path):
    made = solver(tmp_path)
    made.net.save_hdf5(str(tmp_path / "net.h5"))
    with h5py.File(tmp_path / "net.h5") as file:
        assert {name: sorted(group) for name, group in file["data"].items()} == {
            "in": [], "first": ["0", "1"], "again": ["1"], "loss": []}
        assert "diff" not in file
    (tmp_path / "alone.prototxt").write_text(NET.replace('param { name: "w" }', "param { }"))
    with pytest.raises(ValueError, match="layer 'again' has 1 blobs in the file, 2 in the net"):
        caffe.Net(str(tmp_path / "alone.prototxt"), caffe.TRAIN).load_hdf5(str(tmp_path / "net.h5"))


def test_pycaffes_diffs_are_the_step_after_an_update(tmp_path):
    made = solver(tmp_path, "momentum: 0.9")
    before = weights(made.net)
    made.step(1)
    after = weights(made.net)
    np.testing.assert_allclose(made.net.params["first"][0].diff, before["first", 0] - after["first", 0], atol=1e-6)


@pytest.mark.parametrize("kind", ["SGD", "AdaGrad", "Adam"])
def test_frozen_parameters_decay_in_the_histories_alone(tmp_path, kind):
    """Caffe lets a rate of 0 through the rule: weights stay, squares of the decayed gradient add up."""
    made = solver(tmp_path, f'type: "{kind}"')
    made.step(1)
    made.snapshot()
    frozen = made.net.params["again"][1].data
    np.testing.assert_array_equal(frozen, np.full(4, 0.5, np.float32))
    decayed = 0.01 * 2 * 0.5
    wanted = {"SGD": [0], "AdaGrad": [decayed**2], "Adam": [decayed, 0.001 * decayed**2]}[kind]  # momentum2 0.999
    histories = read_state(tmp_path / "run_iter_1.solverstate").history
    for i, value in enumerate(wanted):
        np.testing.assert_allclose(histories[3 * i + 2], np.full(4, value), rtol=1e-4)


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
@pytest.mark.parametrize("damage", [
    lambda place: b"", lambda place: place[:-1], lambda place: place[:100],
    lambda place: place[:-4] + (625).to_bytes(4, "little"),  # a position outside of the generator's words
    lambda place: place[:-4] + b"\xff" * 4], ids=["nothing", "a byte less", "short", "outside", "far outside"])
def test_damaged_random_numbers_are_one_line(tmp_path, form, damage):
    made = solver(tmp_path, f"snapshot_format: {form}")
    made.step(1)
    made.snapshot()
    path = tmp_path / ("run_iter_1.solverstate" + (".h5" if form == "HDF5" else ""))
    state = read_state(path)
    write_state(path, dataclasses.replace(state, streams=[damage(place) for place in state.streams]))
    with pytest.raises(RuntimeError, match=r"^\S*run_iter_1\.solverstate\S*: damaged random state: a random"):
        solver(tmp_path).restore(str(path))


def test_a_model_whose_name_is_no_text_is_found(tmp_path):
    """A file's name may be any bytes."""
    plain, h5 = tmp_path / "plain.solverstate", tmp_path / "state.solverstate.h5"
    content = caffe_pb2.SolverState(iter=3, learned_net="abc").SerializeToString()
    plain.write_bytes(content.replace(b"abc", b"a\xff\xfe"))
    with h5py.File(h5, "w") as file:
        file["iter"], file["current_step"] = np.array([3]), np.array([0])
        file["learned_net"] = np.bytes_(b"a\xff\xfe")
        file.create_group("history")
    assert {read_state(path).learned_net for path in (plain, h5)} == {os.fsdecode(b"a\xff\xfe")}


@pytest.mark.parametrize(("fields", "written"), [
    ("max_iter: 0", [0]), ("max_iter: 0 snapshot: 1", []), ("max_iter: 2", [2]), ("max_iter: 2 snapshot: 2", [2]),
    ("max_iter: 3 snapshot: 2", [2, 3]), ("max_iter: 0 snapshot_after_train: false", [])])
@pytest.mark.parametrize("by", ["python", "train"])
def test_training_ends_with_a_snapshot_unless_one_was_due(tmp_path, fields, written, by):
    """Caffe's Solve: unless ``snapshot`` divides the iteration, also where there was nothing to train."""
    made = solver(tmp_path, fields)
    if by == "train":
        assert cli.main(["train", "-solver", str(tmp_path / "solver.prototxt"), "-threads", "1"]) == 0
    else:
        made.solve()
    assert {path.name for path in tmp_path.glob("run_iter_*")} == {
        f"run_iter_{i}.{kind}" for i in written for kind in ("caffemodel", "solverstate")}


@pytest.mark.parametrize("by", ["python", "train"])
def test_a_run_that_goes_on_at_its_end_writes_one_too(tmp_path, by):
    made = solver(tmp_path, "max_iter: 2")
    made.step(2)
    made.snapshot()
    before = (tmp_path / "run_iter_2.caffemodel").read_bytes()
    (tmp_path / "kept").mkdir()
    for path in tmp_path.glob("run_iter_2.*"):
        path.rename(tmp_path / "kept" / path.name)
    state = str(tmp_path / "kept" / "run_iter_2.solverstate")
    if by == "train":
        flags = ["-solver", str(tmp_path / "solver.prototxt"), "-snapshot", state, "-threads", "1"]
        assert cli.main(["train", *flags]) == 0
    else:
        solver(tmp_path, "max_iter: 2").solve(state)
    assert (tmp_path / "run_iter_2.solverstate").is_file()
    assert (tmp_path / "run_iter_2.caffemodel").read_bytes() == before


def test_a_snapshot_waits_for_what_the_device_has_queued():
    told = []
    strategy = SimpleNamespace(synchronize_parameters=lambda: told.append("sent"),
                               replica=SimpleNamespace(communicator=SimpleNamespace(
                                   wait_for_device=lambda: told.append("there"))),
                               state=SimpleNamespace(parameters=lambda: told.append("read")))
    whole_parameters(SimpleNamespace(strategy=strategy))
    assert told == ["sent", "there", "read"]
