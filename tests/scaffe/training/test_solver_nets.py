"""Which nets a solver names: files and messages, states and stages, in Caffe's order."""

from argparse import Namespace

import pytest
from google.protobuf import text_format

from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.layers.base.random import Stream
from scaffe.nets import graph
from scaffe.nets.devices import load_kernels
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import NetMaker

OPTIONS = Namespace(scal="strong", stage="", level=0, readers=0)
NET = """name: "%s" layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 2 } } }
         layer { name: "train" type: "Silence" bottom: "d" include { phase: TRAIN } }
         layer { name: "test" type: "Silence" bottom: "d" include { phase: TEST } }
         layer { name: "a" type: "Silence" bottom: "d" include { stage: "a" } }
         layer { name: "high" type: "Silence" bottom: "d" include { min_level: 2 } }"""


def nets(folder, text, options=OPTIONS):
    """(name, its Silence layers) of the training net and of the test nets."""
    (folder / "solver.prototxt").write_text(text)
    maker = NetMaker(graph.read_solver(folder / "solver.prototxt"), options, load_kernels(1), Stream(1), Share())
    made = [train := maker.train_net(), *maker.test_nets(train)]
    return [(net.name, [node.name for node in net.nodes if node.param.type == "Silence"]) for net in made]


@pytest.fixture
def files(tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.prototxt").write_text(NET % name)
    return tmp_path


def test_one_net_for_both(files):
    text = 'net: "one.prototxt" test_iter: 1 test_iter: 1 test_interval: 9 test_state { stage: "a" } ' \
           'test_state { level: 2 } train_state { stage: "a" level: 3 }'
    assert nets(files, text) == [("one", ["train", "a", "high"]), ("one", ["test", "a"]), ("one", ["test", "high"])]


def test_files_of_their_own(files):
    text = 'train_net: "one.prototxt" test_net: "two.prototxt" test_net: "three.prototxt" ' \
           "test_iter: 1 test_iter: 1 test_interval: 9"
    assert nets(files, text) == [("one", ["train"]), ("two", ["test"]), ("three", ["test"])]


def test_messages_inside_the_solver_and_the_common_net_last(files):
    inline = {name: " ".join((NET % name).split()) for name in ("x", "y")}
    text = f"net_param {{ {inline['x']} }} test_net_param {{ {inline['y']} }} test_net: 'two.prototxt' " \
           "test_iter: 1 test_iter: 1 test_iter: 1 test_interval: 9"
    assert nets(files, text) == [("x", ["train"]), ("y", ["test"]), ("two", ["test"]), ("x", ["test"])]
    assert nets(files, f"train_net_param {{ {inline['y']} }}") == [("y", ["train"])]


@pytest.mark.parametrize(("text", "said"), [
    ('net: "one.prototxt" train_net: "two.prototxt"', "must give one of .* it gives net, train_net"),
    ("base_lr: 1", "it gives none"),
    ('train_net: "one.prototxt" test_iter: 1 test_interval: 1', "1 test_iter for 0 test nets"),
    ('train_net: "one.prototxt" test_net: "two.prototxt"', "0 test_iter for 1 test nets"),
    ('net: "one.prototxt" test_iter: 1', "test_interval is 0, not above 0"),
])
def test_mistakes(files, text, said):
    with pytest.raises(UserError, match=said):
        nets(files, text)


def test_the_solvers_own_net_message_may_be_old():
    solver = text_format.Parse('net_param { layers { name: "r" type: RELU } }', caffe_pb2.SolverParameter())
    assert graph.prepare(solver.net_param, caffe_pb2.TRAIN).layer[0].type == "ReLU"
