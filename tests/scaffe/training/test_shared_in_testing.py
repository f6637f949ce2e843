"""Layers of the test net alone: those that share by name read what is being trained, others what is given."""

from argparse import Namespace

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe as caffe
from scaffe.cli.commands import train
from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError
from scaffe.files import StoredLayer, write_model
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import save_checkpoint
from scaffe.training.strategies import Role

SOLVER = 'base_lr: 0.1 lr_policy: "fixed" max_iter: 2 random_seed: 5 test_iter: 1 test_interval: 100'
NET = """layer { name: "in" type: "DummyData" top: "x" top: "t" dummy_data_param {
  shape { dim: 4 dim: 5 } shape { dim: 4 dim: 3 }
  data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 2 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" }
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "b" type: "InnerProduct" bottom: "x" top: "b" include { phase: TEST } param { name: "w" }
  inner_product_param { num_output: 3 bias_term: false } }
layer { name: "ignored" type: "Silence" bottom: "b" include { phase: TEST } }
layer { name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "t" top: "loss" }"""


def test_a_layer_of_the_test_net_alone_reads_trained_parameters():
    param = text_format.Parse(SOLVER, caffe_pb2.SolverParameter())
    text_format.Parse(NET, param.net_param)
    solver = build_solver(Communicator.single(), param, Namespace(
        strategy="auto", reduce="auto", allow_nan=False, threads=1, readers=1, stage="", level=0, scal="strong",
        gpu="", tf32="off"))
    before = solver.net.node("a").layer.blobs[0].data.copy()
    solver.step(2)
    trained, read = (net.node(name).layer.blobs[0].data
                     for net, name in ((solver.net, "a"), (solver.test_nets[0], "b")))
    assert not np.array_equal(before, trained)
    assert np.array_equal(read, trained)
    assert solver.test_nets[0].own_blobs == []


PROBED = NET + """layer { name: "probe" type: "InnerProduct" bottom: "a" top: "p" include { phase: TEST }
  inner_product_param { num_output: 2 weight_filler { type: "constant" value: 9 } } }
layer { name: "again" type: "InnerProduct" bottom: "x" top: "q" include { phase: TEST } param { name: "w" }
  inner_product_param { num_output: 3 } }
layer { name: "unseen" type: "Silence" bottom: "p" bottom: "q" include { phase: TEST } }"""
OF_PROBE = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([7, -7])
OF_A, OF_BIAS = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5), np.float32([4, 5, 6])


@pytest.fixture
def pretrained(tmp_path):
    """Two files: one has the layer "a", the other those that the test net alone has, with another "w" beside."""
    def write(name, layers):
        write_model(tmp_path / name, "", [StoredLayer(caffe_pb2.LayerParameter(name=layer, type="InnerProduct"), blobs)
                                          for layer, blobs in layers.items()])
        return str(tmp_path / name)

    return (write("a.caffemodel", {"a": [OF_A, np.zeros(3, np.float32)]}),
            write("p.caffemodel", {"probe": OF_PROBE, "again": [2 * OF_A, OF_BIAS], "elsewhere": [OF_BIAS]}))


def check_probed(solver):
    """The training net has its own file's values, the test net's own layers those of theirs."""
    test = solver.test_nets[0]
    for blob, expected in zip(test.node("probe").layer.blobs, OF_PROBE, strict=True):
        np.testing.assert_array_equal(to_host(blob.data), expected)
    shared, own = test.node("again").layer.blobs
    np.testing.assert_array_equal(to_host(own.data), OF_BIAS)
    for blob in (shared, test.node("a").layer.blobs[0], solver.net.node("a").layer.blobs[0]):
        np.testing.assert_array_equal(to_host(blob.data), OF_A)
    solver.test_forward(test)
    np.testing.assert_allclose(to_host(test.blobs["p"].data),
                               np.tile(OF_A.sum(1) @ OF_PROBE[0].T + OF_PROBE[1], (4, 1)), rtol=1e-4)


def to_host(array):
    return np.asarray(array.get() if hasattr(array, "get") else array)


def started(folder, weights, *flags):
    """The solver that ``train`` starts with, of fields ``weights`` and flags."""
    (folder / "solver.prototxt").write_text("\n".join(
        [SOLVER, f"net_param {{ {PROBED} }}", *(f'weights: "{paths}"' for paths in weights)]))
    options = train._flags().parse(["-solver", str(folder / "solver.prototxt"), "-threads", "1", *flags])
    param = train._read_solver(options)
    solver = train._builder(param, options)(Role.worker(Communicator.single(), options), options)
    train._start_from(solver, param, options)
    return solver


@pytest.mark.parametrize("where", ["flag", "solver", "fields", "limited"])
def test_layers_of_the_test_net_alone_have_their_pretrained_weights(tmp_path, pretrained, where):
    """As Solver::InitTestNets does; also when test nets are made again, for the ranks that are left."""
    weights = {"solver": [f" {pretrained[0]},\\t{pretrained[1]} "], "fields": pretrained}.get(where, [])
    flags = [] if weights else ["-weights", " , ".join(pretrained)]
    solver = started(tmp_path, weights, *flags, *(["-memory", "1GB", "-spill", str(tmp_path)] * (where == "limited")))
    check_probed(solver)
    solver.remake_tests()
    check_probed(solver)
    solver.close()


def test_also_in_python_and_when_a_run_goes_on(tmp_path, pretrained):
    solver = started(tmp_path, pretrained)
    made = caffe.SGDSolver(str(tmp_path / "solver.prototxt"))
    check_probed(made._built)
    made.net.copy_from(pretrained[1])  # the training net's alone
    check_probed(made._built)
    save_checkpoint(solver)
    solver.close()
    check_probed(started(tmp_path, pretrained, "-snapshot", str(tmp_path / "solver_iter_0.solverstate")))


def test_weights_that_do_not_fit_a_layer_of_the_test_net_are_told(tmp_path, pretrained):
    wrong = tmp_path / "wrong.caffemodel"
    write_model(wrong, "", [StoredLayer(caffe_pb2.LayerParameter(name="probe"), [OF_A, OF_BIAS])])
    with pytest.raises(UserError, match="wrong.caffemodel: layer 'probe' blob 0 has shape 3x5 in the file, 2x3 in the"):
        started(tmp_path, [str(wrong)])
