"""Upgrade, filter, splits and backward plan, against what Caffe 1.0 does with the same nets."""

import pytest
from google.protobuf import text_format

from scaffe.errors import UserError
from scaffe.files.upgrade import upgrade_net, upgrade_solver
from scaffe.nets import graph
from scaffe.proto import caffe_pb2

TRAIN, TEST = 0, 1


def net(text):
    return text_format.Parse(text, caffe_pb2.NetParameter())


def names(message):
    return [layer.name for layer in message.layer]


@pytest.mark.parametrize(("rules", "state", "belongs"), [
    ("", {}, True),
    ("include { phase: TEST }", {"phase": TRAIN}, False),
    ("include { phase: TEST }", {"phase": TEST}, True),
    ("exclude { phase: TEST }", {"phase": TEST}, False),
    ("include { min_level: 2 }", {"level": 1}, False),
    ("include { min_level: 2 max_level: 3 }", {"level": 3}, True),
    ("include { min_level: 2 max_level: 3 }", {"level": 4}, False),
    ('include { stage: "a" stage: "b" }', {"stages": ["a"]}, False),
    ('include { stage: "a" stage: "b" }', {"stages": ["b", "a", "c"]}, True),
    ('include { stage: "a" } include { stage: "b" }', {"stages": ["b"]}, True),
    ('include { stage: "\uefff" }', {"stages": ["\udcff"]}, True),  # a byte of the command line that is no UTF-8
    ('include { stage: "\uefff" }', {"stages": ["a"]}, False),
    ('include { stage: "a" not_stage: "x" }', {"stages": ["a", "x"]}, False),
    ('exclude { stage: "a" } exclude { phase: TEST }', {"stages": ["a"]}, False),
])
def test_rules_decide_who_belongs(rules, state, belongs):
    message = net(f'layer {{ name: "l" type: "Silence" {rules} }}')
    phase = state.pop("phase", TRAIN)
    assert names(graph.prepare(message, phase, **state)) == (["l"] if belongs else [])


def test_both_kinds_of_rules_are_refused():
    with pytest.raises(UserError, match="layer 'l'.*not both"):
        graph.prepare(net('layer { name: "l" include { phase: TEST } exclude { min_level: 1 } }'), TEST)


def test_the_nets_own_stages_count():
    message = net('state { stage: "deploy" level: 3 } layer { name: "l" include { stage: "deploy" min_level: 3 } }')
    assert names(graph.prepare(message, TEST)) == ["l"]


def test_splits_have_caffes_names():
    made = graph.prepare(net("""
        layer { name: "mnist" type: "Data" top: "data" top: "label" }
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" }
        layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
        layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""), TEST)
    assert names(made) == ["mnist", "label_mnist_1_split", "ip", "relu", "ip_relu_0_split", "acc", "loss"]
    assert list(made.layer[4].top) == ["ip_relu_0_split_0", "ip_relu_0_split_1"]
    assert list(made.layer[5].bottom) == ["ip_relu_0_split_0", "label_mnist_1_split_0"]
    assert list(made.layer[6].bottom) == ["ip_relu_0_split_1", "label_mnist_1_split_1"]
    assert all(layer.phase == TEST for layer in made.layer)


def test_a_loss_weight_is_the_splits_first_use():
    made = graph.prepare(net("""
        layer { name: "d" type: "Input" top: "d" }
        layer { name: "e" type: "EuclideanLoss" bottom: "d" bottom: "d" top: "l" loss_weight: 3 }
        layer { name: "p" type: "Power" bottom: "l" top: "p" }"""), TRAIN)
    split = next(layer for layer in made.layer if layer.name == "l_e_0_split")
    assert list(split.loss_weight) == [3, 0]
    assert not made.layer[2].loss_weight
    assert list(made.layer[-1].bottom) == ["l_e_0_split_1"]


def test_v0_padding_and_options_move():
    made = graph.prepare(net("""
        layers { layer { name: "data" type: "data" source: "x" batchsize: 4 scale: 0.5 cropsize: 7 }
                 top: "data" top: "label" }
        layers { layer { name: "pad" type: "padding" pad: 2 } bottom: "data" top: "padded" }
        layers { layer { name: "c" type: "conv" num_output: 3 kernelsize: 5 blobs_lr: 1 blobs_lr: 2 weight_decay: 1
                 weight_decay: 0 weight_filler { type: "xavier" } } bottom: "padded" top: "c" }
        layers { layer { name: "loss" type: "softmax_loss" } bottom: "c" bottom: "label" }"""), TRAIN)
    data, conv, loss = made.layer
    assert (data.type, conv.type, loss.type) == ("Data", "Convolution", "SoftmaxWithLoss")
    assert (data.data_param.batch_size, data.transform_param.crop_size) == (4, 7)
    options = conv.convolution_param
    assert (list(conv.bottom), list(options.pad), list(options.kernel_size)) == (["data"], [2], [5])
    assert [(p.lr_mult, p.decay_mult) for p in conv.param] == [(1, 1), (2, 0)]


def test_what_an_old_layers_type_does_not_take_is_ignored_with_a_line(capsys):
    made = upgrade_net(net('''layers { layer { name: "d" type: "data" source: "x" det_fg_threshold: 0.5 num_output: 3
        det_crop_mode: "warp" batchsize: 2 } top: "data" top: "label" }'''))
    data, said = made.layer[0], capsys.readouterr().err
    assert (data.type, data.data_param.source, data.data_param.batch_size) == ("Data", "x", 2)
    assert not data.HasField("window_data_param") and not data.HasField("convolution_param")
    assert all(f"layer 'd' of the old type 'data' takes no {name}; it is ignored" in said
               for name in ("det_fg_threshold", "num_output", "det_crop_mode"))


def test_v0_padding_takes_the_readers_place_for_pad_and_ends_where_its_blob_is_made_anew():
    made = upgrade_net(net("""
        layers { layer { name: "pad" type: "padding" pad: 3 } bottom: "x" top: "p" }
        layers { layer { name: "c" type: "conv" pad: 1 } bottom: "p" top: "c" }
        layers { layer { name: "q" type: "pool" } bottom: "c" top: "p" }
        layers { layer { name: "r" type: "relu" } bottom: "p" top: "p" }"""))
    assert [(layer.name, list(layer.bottom)) for layer in made.layer] == [("c", ["x"]), ("q", ["c"]), ("r", ["p"])]
    assert list(made.layer[0].convolution_param.pad) == [3]


@pytest.mark.parametrize(("reader", "said"), [
    ('type: "relu" } bottom: "p"', "'pad' must stand before a conv or pool layer of one bottom, not before 'l'"),
    ('type: "conv" } bottom: "p" bottom: "p"', "must stand before a conv or pool layer of one bottom"),
])
def test_v0_padding_before_other_layers_is_refused(reader, said):
    with pytest.raises(UserError, match=said):
        upgrade_net(net('layers { layer { name: "pad" type: "padding" pad: 3 } bottom: "x" top: "p" } '
                        'layers { layer { name: "l" ' + reader + " }"))


def test_v1_types_names_and_sharing_move():
    made = upgrade_net(net("""
        layers { name: "ip" type: INNER_PRODUCT bottom: "a" top: "b" param: "w" param: "" blob_share_mode: PERMISSIVE
                 blobs_lr: 1 inner_product_param { num_output: 7 } include { phase: TEST } loss_weight: 2 }
        layers { name: "h" type: HDF5_DATA top: "x" } layers { name: "t" type: TANH bottom: "b" top: "t" }"""))
    assert [layer.type for layer in made.layer] == ["InnerProduct", "HDF5Data", "TanH"]
    first = made.layer[0]
    assert (first.param[0].name, first.param[0].share_mode, first.param[0].lr_mult) == ("w", 1, 1)
    assert (first.inner_product_param.num_output, first.include[0].phase, list(first.loss_weight)) == (7, TEST, [2])


def test_layers_of_today_beside_those_of_2014_are_ignored_with_a_line(capsys):
    made = upgrade_net(net('name: "n" layer { name: "new" type: "TanH" } layers { name: "old" type: RELU }'))
    assert [layer.name for layer in made.layer] == ["old"]
    assert "net 'n': 1 'layer' beside 1 of the old 'layers' are ignored" in capsys.readouterr().err


def test_only_old_nets_transformations_move():
    made = upgrade_net(net('layers { type: IMAGE_DATA image_data_param { scale: 2 mirror: true new_width: 3 } }'))
    assert (made.layer[0].transform_param.scale, made.layer[0].transform_param.mirror) == (2, True)
    assert made.layer[0].image_data_param == caffe_pb2.ImageDataParameter(new_width=3)
    made = upgrade_net(net('layer { type: "WindowData" window_data_param { scale: 2 } }'))
    assert (made.layer[0].window_data_param.scale, made.layer[0].HasField("transform_param")) == (2, False)


def test_input_fields_become_a_layer():
    made = upgrade_net(net('input: "data" input: "im_info" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 9 '
                           'input_dim: 2 input_dim: 1 input_dim: 1 input_dim: 4 layer { name: "x" }'))
    assert names(made) == ["input", "x"]
    assert [list(s.dim) for s in made.layer[0].input_param.shape] == [[1, 3, 8, 9], [2, 1, 1, 4]]


def test_inputs_without_their_shapes_are_refused():
    with pytest.raises(UserError, match="'n' has 2 input but 1 input_shape"):
        upgrade_net(net('name: "n" input: "a" input: "b" input_shape { dim: 1 }'))
    with pytest.raises(UserError, match="2 input but 7 input_dim"):
        upgrade_net(net('input: "a" input: "b"' + " input_dim: 1" * 7))


def test_a_trained_nets_bare_inputs_go():
    made = upgrade_net(net('input: "a" layers { name: "x" type: RELU }'))
    assert (names(made), list(made.input)) == (["x"], [])


def test_old_batch_norms_statistics_do_not_learn():
    made = upgrade_net(net("""
        layer { type: "BatchNorm" param { name: "m" lr_mult: 1 } param {} param { decay_mult: 2 } }"""))
    assert [(p.name, p.lr_mult, p.decay_mult) for p in made.layer[0].param] == [("m", 0, 0), ("", 0, 0), ("", 0, 0)]


def test_old_solver_types_become_names():
    solver = text_format.Parse("solver_type: ADADELTA", caffe_pb2.SolverParameter())
    assert upgrade_solver(solver).type == "AdaDelta"
    with pytest.raises(UserError, match="both type and"):
        upgrade_solver(text_format.Parse('solver_type: ADAM type: "SGD"', caffe_pb2.SolverParameter()))


def spec(bottoms, tops, learns=False, loss=False, down=(), force=None):
    return graph.BackwardSpec(tuple(bottoms.split()), tuple(tops.split()), tuple(down),
                              tuple(loss for _ in tops.split()), learns, force or (True,) * len(bottoms.split()))


def test_backward_goes_where_something_learns_and_a_loss_lies_behind():
    plans = graph.plan_backward([
        spec("", "data label"), spec("data", "a", learns=True), spec("a", "b"), spec("b", "b0 b1"),
        spec("b0", "unused", learns=True), spec("b1 label", "loss", loss=True)])
    assert [p.needs_backward for p in plans] == [False, True, True, True, False, True]
    assert [p.propagate_down for p in plans] == [[], [False], [True], [True], [False], [True, False]]


def test_propagate_down_cuts_everything_below():
    plans = graph.plan_backward([
        spec("", "data"), spec("data", "a", learns=True), spec("a", "b", learns=True, down=[False]),
        spec("b", "loss", loss=True)])
    assert [p.needs_backward for p in plans] == [False, False, True, True]


def test_force_backward_asks_every_bottom_that_allows_it():
    loss = spec("data label", "loss", loss=True, force=(True, False))
    plans = graph.plan_backward([spec("", "data label"), loss], True)
    assert plans[1].propagate_down == [True, False]
    assert plans[1].needs_backward


def test_net_files_are_found_beside_the_solver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/net.prototxt").write_text('name: "n"')
    (tmp_path / "sub/solver.prototxt").write_text('net: "elsewhere/net.prototxt" snapshot_prefix: "sub"')
    solver = graph.read_solver("sub/solver.prototxt")
    assert (solver.net, solver.snapshot_prefix) == ("sub/net.prototxt", "sub/solver")


@pytest.mark.parametrize(("fork", "bvlc"), [("false", "FLOOR"), ("true", "CEIL")])
def test_ceil_mode_becomes_round_mode(fork, bvlc):
    text = 'layer { name: "p" type: "Pooling" pooling_param { kernel_size: 2 %s } }'
    assert upgrade_net(net(text % f"ceil_mode: {fork}")) == net(text % f"round_mode: {bvlc}")
