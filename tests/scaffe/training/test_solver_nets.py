"""Which nets a solver names: files and messages, states and stages, in Caffe's order."""

from argparse import Namespace

import pytest
from google.protobuf import text_format

import scaffe as caffe
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.layers.base.random import Stream
from scaffe.nets import graph
from scaffe.nets.devices import load_kernels
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import NetMaker

OPTIONS = Namespace(scal="strong", stage="", level=0, readers=0)  # those of ``train`` without flags
FROM_PYTHON = Namespace(**vars(OPTIONS) | {"level": None})
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
    test = [("one", ["test", "a"]), ("one", ["test", "high"])]
    assert nets(files, text, FROM_PYTHON) == [("one", ["train", "a", "high"]), *test]
    assert nets(files, text) == [("one", ["train", "a"]), *test]  # Caffe's tool sets train_state's level
    assert nets(files, text, Namespace(**vars(OPTIONS) | {"level": 2})) == [("one", ["train", "a", "high"]), *test]


@pytest.mark.parametrize("state", ["", "test_state { }"])
def test_the_flags_are_for_the_training_net_alone(files, state):
    """Caffe's tool writes them into train_state."""
    flags = Namespace(**vars(OPTIONS) | {"level": 3, "stage": "a,b"})
    text = f'net: "one.prototxt" test_iter: 1 test_interval: 9 {state}'
    assert nets(files, text, flags) == [("one", ["train", "a", "high"]), ("one", ["test"])]


def test_a_nets_own_state_counts_where_the_solver_says_nothing(files):
    (files / "one.prototxt").write_text(f'state {{ stage: "a" level: 2 }} {NET % "one"}')
    text = 'net: "one.prototxt" test_iter: 1 test_iter: 1 test_interval: 9 test_state { } test_state { level: 1 }'
    test = [("one", ["test", "a", "high"]), ("one", ["test", "a"])]
    assert nets(files, text, FROM_PYTHON) == [("one", ["train", "a", "high"]), *test]
    assert nets(files, text) == [("one", ["train", "a"]), *test]


def test_the_level_of_a_net_by_itself_is_the_callers(files):
    """Caffe's ``Net(file, phase, level)`` sets it, 0 too."""
    (files / "own.prototxt").write_text(f'state {{ level: 2 }} {NET % "own"}')
    for level, layers in ((0, ["test"]), (2, ["test", "high"])):
        made = caffe.Net(str(files / "own.prototxt"), caffe.TEST, level=level)
        assert [name for name in made.layer_dict if made.layer_dict[name].type == "Silence"] == layers


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
    ('net: "one.prototxt" test_net: "two.prototxt" test_net: "one.prototxt" test_iter: 1 test_interval: 1',
     "1 test_iter for 2 test nets; it must have one for each"),
    ('net: "one.prototxt" test_iter: 1 test_iter: 1 test_interval: 1 test_state { }',
     "1 test_state for 2 test nets; it must have none, or one for each"),
    ('net: "one.prototxt" test_iter: 1 test_interval: 1 test_state { } test_state { }', "2 test_state for 1 test nets"),
    ('net: "one.prototxt" test_state { }', "1 test_state for 0 test nets"),
    ('net: "one.prototxt" test_net: "absent.prototxt" test_interval: 1', "0 test_iter for 1 test nets"),
])
def test_mistakes(files, text, said):
    with pytest.raises(UserError, match=said):
        nets(files, text)


def test_the_solvers_own_net_message_may_be_old():
    solver = text_format.Parse('net_param { layers { name: "r" type: RELU } }', caffe_pb2.SolverParameter())
    assert graph.prepare(solver.net_param, caffe_pb2.TRAIN).layer[0].type == "ReLU"
