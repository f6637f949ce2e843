"""Reports and questions of the users of Caffe and its forks, each rebuilt small; values come from formulas or NumPy."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

import scaffe as caffe
from scaffe.errors import UserError

XAVIER = 'weight_filler { type: "xavier" }'


def net_of(folder: Path, text: str, phase: int = caffe.TEST, **options):
    """A net from its text."""
    path = folder / f"{abs(hash(text))}.prototxt"
    path.write_text(text)
    return caffe.Net(str(path), phase, **options)


def solver_of(folder: Path, text: str, options: str = ""):
    """A solver of a net's text: SGD, rate 0.5."""
    (folder / "net.prototxt").write_text(text)
    (folder / "solver.prototxt").write_text(
        f'net: "{folder}/net.prototxt" base_lr: 0.5 lr_policy: "fixed" random_seed: 3 {options}')
    return caffe.SGDSolver(str(folder / "solver.prototxt"))


def blob(name: str, *dims: int) -> str:
    """An input."""
    return (f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
            + " ".join(f"dim: {n}" for n in dims) + " } } } ")


def inner(name: str, bottom: str, n: int, more: str = "") -> str:
    """An InnerProduct layer."""
    return (f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {more} '
            f"inner_product_param {{ num_output: {n} {XAVIER} }} }} ")


def layer(kind: str, name: str, *bottoms: str, top: str = "", more: str = "") -> str:
    """Any layer of one top."""
    reads = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    return f'layer {{ name: "{name}" type: "{kind}" {reads} top: "{top or name}" {more} }} '


def values(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def fill(net, **inputs) -> None:
    """Write blobs."""
    for name, array in inputs.items():
        net.blobs[name].data[...] = array


# -- net surgery -------------------------------------------------------------------------------------------
def test_weights_written_into_a_solvers_net_are_its_own_and_its_test_nets(tmp_path):
    """BVLC/caffe 1257."""
    data = 'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } } '
    text = data + inner("ip", "x", 2) + layer("Reduction", "loss", "ip", more="loss_weight: 1")
    solver = solver_of(tmp_path, text, "test_iter: 1 test_interval: 100")
    source = net_of(tmp_path, blob("x", 2, 3) + inner("ip", "x", 2))
    for i in range(2):
        source.params["ip"][i].data[...] = values(*source.params["ip"][i].shape, seed=i)
        solver.net.params["ip"][i].data[...] = source.params["ip"][i].data
        np.testing.assert_array_equal(solver.test_nets[0].params["ip"][i].data, source.params["ip"][i].data)
    solver.step(1)
    np.testing.assert_allclose(solver.net.params["ip"][1].data, source.params["ip"][1].data - 0.5 * 2, rtol=1e-6)


def test_an_inner_product_becomes_a_convolution(tmp_path):
    """BVLC/caffe 455: a classifier made to slide over larger images."""
    old = net_of(tmp_path, blob("x", 1, 2, 3, 4) + inner("fc", "x", 5))
    text = layer("Convolution", "fc-conv", "x",
                 more="convolution_param { num_output: 5 kernel_h: 3 kernel_w: 4 }")
    new = net_of(tmp_path, blob("x", 1, 2, 5, 7) + text)
    new.params["fc-conv"][0].data.flat = old.params["fc"][0].data.flat
    new.params["fc-conv"][1].data[...] = old.params["fc"][1].data
    image = values(1, 2, 5, 7)
    found = new.forward(x=image)["fc-conv"]
    for y, x in np.ndindex(3, 4):
        expected = old.forward(x=image[:, :, y:y + 3, x:x + 4])["fc"]
        np.testing.assert_allclose(found[:, :, y, x], expected, rtol=1e-4, atol=1e-5)


def test_a_blobs_data_cannot_be_replaced(tmp_path):
    """BVLC/caffe 6307."""
    net = net_of(tmp_path, blob("x", 1, 3) + inner("ip", "x", 2))
    with pytest.raises(AttributeError):
        net.params["ip"][0].data = np.zeros((2, 3))
    net.params["ip"][1].data[...] = 3
    np.testing.assert_array_equal(net.params["ip"][1].data, [3, 3])


def test_shared_weights_learn_from_both_places_once(tmp_path):
    """BVLC/caffe 3567, 2866: momentum counts the sum of both gradients once."""
    shared = 'param { name: "w" } param { lr_mult: 0 }'
    data = ('layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 2 } '
            'data_filler { type: "constant" value: 1 } } } ')
    text = data + inner("a", "x", 2, shared) + inner("b", "a", 2, shared) + layer(
        "Reduction", "loss", "b", more="loss_weight: 1")
    solver = solver_of(tmp_path, text, "momentum: 0.5")
    w = solver.net.params["a"][0].data.astype(float).copy()
    velocity, x, ones = np.zeros((2, 2)), np.ones(2), np.ones(2)
    for _ in range(3):
        gradient = np.outer(ones, w @ x) + np.outer(w.T @ ones, x)
        velocity = 0.5 * velocity + 0.5 * gradient
        w = w - velocity
    solver.step(3)
    np.testing.assert_allclose(solver.net.params["b"][0].data, w, rtol=1e-4)
    np.testing.assert_array_equal(solver.net.params["b"][0].data, solver.net.params["a"][0].data)


def test_a_test_nets_second_branch_shares_by_name(tmp_path):
    """BVLC/caffe 4585: the branch is in the test net alone."""
    shared = 'param { name: "w" } param { name: "b" }'
    text = ('layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } } '
            + inner("a", "x", 2, shared) + inner("a_p", "x", 2, shared + " include { phase: TEST }")
            + layer("Reduction", "loss", "a", more="loss_weight: 1"))
    solver = solver_of(tmp_path, text, "test_iter: 1 test_interval: 100")
    solver.step(2)
    for name in ("a", "a_p"):
        np.testing.assert_array_equal(solver.test_nets[0].params[name][0].data, solver.net.params["a"][0].data)


TWINS = (blob("x", 2, 3) + inner("twin", "x", 3).replace('top: "twin"', 'top: "a"')
         + inner("twin", "a", 3).replace('top: "twin"', 'top: "b"'))


def test_layers_of_one_name_keep_their_own_weights(tmp_path):
    """BVLC/caffe 7043: both went into the first one. 2885: an HDF5 file cannot hold them."""
    net, x = net_of(tmp_path, TWINS), values(2, 3)
    expected = net.forward(x=x)["b"].copy()
    net.save(str(tmp_path / "w.caffemodel"))
    np.testing.assert_array_equal(net_of(tmp_path, TWINS, weights=str(tmp_path / "w.caffemodel")).forward(x=x)["b"],
                                  expected)
    shared = net_of(tmp_path, TWINS)
    shared.share_with(net)
    np.testing.assert_array_equal(shared.forward(x=x)["b"], expected)
    with pytest.raises(UserError, match="w.h5: 2 layers with parameters are named 'twin'; an HDF5 file has one"):
        net.save_hdf5(str(tmp_path / "w.h5"))
    assert not (tmp_path / "w.h5").exists()
    data = 'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } } '
    text = TWINS.replace(blob("x", 2, 3), data) + layer("Reduction", "loss", "b", more="loss_weight: 1")
    solver = solver_of(tmp_path, text, f'snapshot_format: HDF5 snapshot_prefix: "{tmp_path}/s"')
    with pytest.raises(UserError, match=r"/s: 2 layers with parameters are named 'twin'"):
        solver.step(9)  # at once, not at the first snapshot
    assert solver.iter == 0


def test_a_layer_without_weights_hides_none_of_the_same_name(tmp_path):
    text = blob("x", 2, 3) + inner("fc", "x", 3) + layer("ReLU", "fc", "fc", top="y")
    net = net_of(tmp_path, text)
    assert list(net.params) == ["fc"]
    for save, load in ((net.save, "copy_from"), (net.save_hdf5, "load_hdf5")):
        save(str(tmp_path / load))
        other = net_of(tmp_path, text)
        getattr(other, load)(str(tmp_path / load))
        np.testing.assert_array_equal(other.params["fc"][0].data, net.params["fc"][0].data)


# -- fine-tuning -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ending", ["caffemodel", "caffemodel.h5"])
def test_weights_of_another_shape_are_refused_with_both_shapes(tmp_path, ending):
    """BVLC/caffe 2834, 3293; sfzhang15/RefineDet 25."""
    old = net_of(tmp_path, blob("x", 1, 3) + inner("fc8", "x", 2))
    (old.save if ending == "caffemodel" else old.save_hdf5)(str(tmp_path / f"w.{ending}"))
    with pytest.raises(UserError, match="layer 'fc8' blob 0 has shape 2x3 in the file, 5x3 in the net") as refusal:
        net_of(tmp_path, blob("x", 1, 3) + inner("fc8", "x", 5), weights=str(tmp_path / f"w.{ending}"))
    assert "\n" not in str(refusal.value)
    renamed = net_of(tmp_path, blob("x", 1, 3) + inner("fc8-new", "x", 5), weights=str(tmp_path / f"w.{ending}"))
    assert renamed.params["fc8-new"][0].data.any()


def test_layers_with_lr_mult_0_stay_and_those_above_learn(tmp_path):
    """weight_decay does not change what does not learn."""
    text = ('layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } '
            'data_filler { type: "gaussian" std: 1 } } } '
            + inner("frozen", "x", 4, "param { lr_mult: 0 } param { lr_mult: 0 }") + inner("new", "frozen", 2)
            + layer("Reduction", "loss", "new", more="loss_weight: 1 reduction_param { operation: SUMSQ }"))
    solver = solver_of(tmp_path, text, "weight_decay: 0.1 momentum: 0.9")
    before = {name: solver.net.params[name][0].data.copy() for name in ("frozen", "new")}
    solver.step(2)
    np.testing.assert_array_equal(solver.net.params["frozen"][0].data, before["frozen"])
    assert (solver.net.params["new"][0].data != before["new"]).all()


def test_statistics_of_two_batch_norms_are_shared_by_name(tmp_path):
    """BVLC/caffe 5120 and 5171: the upgrade of three lr_mults took the names away."""
    named = " ".join(f'param {{ name: "{n}" lr_mult: 1 }}' for n in "mvc")
    net = net_of(tmp_path, blob("x", 4, 2, 1, 1) + layer("BatchNorm", "a", "x", more=named)
                 + layer("BatchNorm", "b", "x", more=named), caffe.TRAIN)
    net.forward(x=values(4, 2, 1, 1))
    for one, other in zip(net.params["a"], net.params["b"], strict=True):
        np.testing.assert_array_equal(one.data, other.data)
    assert net.params["a"][2].data[0] == pytest.approx(1.999)  # two batches: 1 · 0.999 + 1


# -- siamese nets ------------------------------------------------------------------------------------------
def contrastive(folder: Path, options: str = ""):
    return net_of(folder, "force_backward: true " + blob("a", 4, 3) + blob("b", 4, 3) + blob("same", 4) + layer(
        "ContrastiveLoss", "loss", "a", "b", "same", more=f"contrastive_loss_param {{ margin: 2 {options} }}"))


@pytest.mark.parametrize("legacy", [False, True])
def test_contrastive_loss_and_its_gradients(tmp_path, legacy):
    """BVLC/caffe 2308, 2312 (nets that share no weights), 5082 and 7100 (the legacy form's gradient)."""
    a, b, same = values(4, 3) / 2, values(4, 3, seed=1) / 2, np.array([1, 0, 1, 0], np.float32)

    def loss(a):
        d = np.sqrt(np.square(a - b).sum(1))
        apart = np.maximum(2 - d**2, 0) if legacy else np.maximum(2 - d, 0) ** 2
        return np.where(same == 1, d**2, apart).sum() / 8

    net = contrastive(tmp_path, f"legacy_version: {str(legacy).lower()}")
    assert net.forward(a=a, b=b, same=same)["loss"] == pytest.approx(loss(a.astype(float)), rel=1e-5)
    net.backward()
    expected = np.zeros((4, 3))
    for place in np.ndindex(4, 3):
        step = np.zeros((4, 3))
        step[place] = 1e-5
        expected[place] = (loss(a + step) - loss(a - step)) / 2e-5
    np.testing.assert_allclose(net.blobs["a"].diff, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(net.blobs["b"].diff, -net.blobs["a"].diff, rtol=1e-6)


def test_contrastive_loss_of_equal_and_of_far_pairs_is_finite(tmp_path):
    """BVLC/caffe 1451."""
    net, a = contrastive(tmp_path), values(4, 3)
    for b in (a, a + 1e15):
        assert np.isfinite(net.forward(a=a, b=b, same=np.zeros(4))["loss"])
        net.backward()
        assert np.isfinite(net.blobs["a"].diff).all()


# -- several labels ----------------------------------------------------------------------------------------
def test_two_labels_from_hdf5_sliced_for_two_losses(tmp_path):
    """BVLC/caffe 2407 and 2575."""
    h5py = pytest.importorskip("h5py")
    labels, scores = np.array([[0, 2], [1, 0], [1, 1.0]]), values(3, 4)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["x"], file["label"] = scores, labels
    (tmp_path / "list").write_text(f"{tmp_path}/d.h5\n")
    text = (f'layer {{ name: "d" type: "HDF5Data" top: "x" top: "label" hdf5_data_param {{ source: "{tmp_path}/list" '
            'batch_size: 3 } } layer { name: "s" type: "Slice" bottom: "label" top: "l0" top: "l1" '
            "slice_param { axis: 1 } } "
            + layer("SoftmaxWithLoss", "loss0", "x", "l0") + layer("SoftmaxWithLoss", "loss1", "x", "l1"))
    found = net_of(tmp_path, text).forward()
    logs = scores - np.log(np.exp(scores.astype(float)).sum(1, keepdims=True))
    for i in range(2):
        assert found[f"loss{i}"] == pytest.approx(-logs[range(3), labels[:, i].astype(int)].mean(), rel=1e-5)


def test_a_sigmoid_cross_entropy_ignores_targets(tmp_path):
    """BVLC/caffe 4986: what is ignored has no gradient, and VALID divides by what is left."""
    net = net_of(tmp_path, "force_backward: true " + blob("x", 2, 3) + blob("t", 2, 3) + layer(
        "SigmoidCrossEntropyLoss", "loss", "x", "t", more="loss_param { ignore_label: -1 normalization: VALID }"))
    x, t = values(2, 3), np.array([[1, -1, 0], [0, 1, -1.0]])
    probability, counts = 1 / (1 + np.exp(-x.astype(float))), t >= 0
    loss = -(t * np.log(probability) + (1 - t) * np.log(1 - probability))[counts].sum() / 4
    assert net.forward(x=x, t=t)["loss"] == pytest.approx(loss, rel=1e-5)
    net.backward()
    np.testing.assert_allclose(net.blobs["x"].diff, np.where(counts, probability - t, 0) / 4, rtol=1e-4, atol=1e-6)


def test_one_hot_labels_in_a_softmax_are_refused(tmp_path):
    """sukritshankar/Caffe-LMDBCreation-MultiLabel 3."""
    with pytest.raises(UserError, match=r"layer 'loss'.*one label a position, 4 .*labels \(4, 20\)"):
        net_of(tmp_path, blob("x", 4, 20) + blob("l", 4, 20) + layer("SoftmaxWithLoss", "loss", "x", "l"))


def test_a_concat_whose_first_bottom_needs_no_gradient(tmp_path):
    """BVLC/caffe 2972."""
    net = net_of(tmp_path, blob("x", 2, 3) + inner("ip", "x", 2) + layer("Concat", "both", "x", "ip")
                 + blob("t", 2, 5) + layer("EuclideanLoss", "loss", "both", "t"), caffe.TRAIN)
    target = values(2, 5, seed=1)
    net.forward(x=values(2, 3), t=target)
    net.backward()
    slopes = (net.blobs["ip"].data - target[:, 3:]) / 2
    np.testing.assert_allclose(net.params["ip"][1].diff, slopes.sum(0), rtol=1e-5)


# -- segmentation ------------------------------------------------------------------------------------------
def test_a_fixed_bilinear_deconvolution_upsamples_and_passes_gradients_on(tmp_path):
    """BVLC/caffe 2213 and 4446: lr_mult 0 keeps the weights, layers below learn all the same."""
    up = ("param { lr_mult: 0 } convolution_param { num_output: 2 group: 2 kernel_size: 4 stride: 2 pad: 1 "
          'bias_term: false weight_filler { type: "bilinear" } }')
    net = net_of(tmp_path, blob("x", 1, 2, 4, 4) + layer(
        "Convolution", "c", "x", more="convolution_param { num_output: 2 kernel_size: 1 "
        'weight_filler { type: "xavier" } }') + layer("Deconvolution", "up", "c", more=up)
        + layer("Reduction", "loss", "up", more="loss_weight: 1"))
    net.forward(x=values(1, 2, 4, 4))
    low, high = net.blobs["c"].data.astype(float), net.blobs["up"].data
    places = (np.arange(2, 6) - 0.5) / 2  # away from the border, where zeros come in
    first, share = places.astype(int), places % 1
    rows = low[:, :, first] * (1 - share)[:, None] + low[:, :, first + 1] * share[:, None]
    expected = rows[:, :, :, first] * (1 - share) + rows[:, :, :, first + 1] * share
    np.testing.assert_allclose(high[:, :, 2:6, 2:6], expected, rtol=1e-4, atol=1e-6)
    net.backward()
    assert net.params["c"][0].diff.any() and not net.params["up"][0].diff.any()


def test_a_crop_starts_at_its_offset_and_has_the_references_size(tmp_path):
    """shelhamer/fcn.berkeleyvision.org 5; longjon/caffe 15: a label of another number of channels."""
    net = net_of(tmp_path, blob("x", 1, 2, 9, 9) + blob("like", 1, 7, 5, 4) + layer(
        "Crop", "y", "x", "like", more="crop_param { axis: 2 offset: 3 }"))
    x = values(1, 2, 9, 9)
    np.testing.assert_array_equal(net.forward(x=x, like=np.zeros((1, 7, 5, 4)))["y"], x[:, :, 3:8, 3:7])
    with pytest.raises(UserError, match=r"layer 'y'.*a crop of \(3, 5, 4\) .* does not fit \(2, 9, 9\)"):
        net_of(tmp_path, blob("x", 1, 2, 9, 9) + blob("like", 1, 3, 5, 4) + layer(
            "Crop", "y", "x", "like", more="crop_param { axis: 1 offset: 0 offset: 3 offset: 3 }"))


@pytest.mark.parametrize("chain", ["Reshape Flatten", "Flatten Reshape", "Reshape Reshape", "Flatten Flatten"])
def test_gradients_pass_reshape_behind_flatten(tmp_path, chain):
    """BVLC/caffe 6769 and 6488: the bottom's diff stayed zero."""
    text, below = "force_backward: true " + blob("x", 2, 3, 4), "x"
    for i, kind in enumerate(chain.split()):
        more = "reshape_param { shape { dim: 2 dim: 12 } }" if kind == "Reshape" else ""
        text, below = text + layer(kind, f"y{i}", below, more=more), f"y{i}"
    net, top = net_of(tmp_path, text), values(2, 12)
    net.forward(x=values(2, 3, 4))
    np.testing.assert_array_equal(net.backward(y1=top)["x"], top.reshape(2, 3, 4))


def test_silence_keeps_the_data_under_force_backward(tmp_path):
    """BVLC/caffe 3151."""
    text = ("force_backward: true " + blob("x", 2, 3) + layer("TanH", "y", "x")
            + 'layer { name: "s" type: "Silence" bottom: "x" } ')
    net, x = net_of(tmp_path, text, caffe.TRAIN), values(2, 3)
    net.forward(x=x)
    net.backward(y=np.ones((2, 3)))
    np.testing.assert_array_equal(net.blobs["x"].data, x)
    np.testing.assert_allclose(net.blobs["x"].diff, 1 - np.tanh(x) ** 2, rtol=1e-4, atol=1e-6)


# -- recurrent nets ----------------------------------------------------------------------------------------
def lstm(folder: Path, n_steps: int):
    return net_of(folder, blob("x", n_steps, 2, 3) + blob("cont", n_steps, 2) + layer(
        "LSTM", "h", "x", "cont", more=f"recurrent_param {{ num_output: 4 {XAVIER} }}"))


def test_steps_one_by_one_are_steps_together(tmp_path):
    """BVLC/caffe 3948 and junhyukoh/caffe-lstm 13: a net of one step for sequences of any length."""
    whole, single, x = lstm(tmp_path, 5), lstm(tmp_path, 1), values(5, 2, 3)
    for ours, theirs in zip(single.params["h"], whole.params["h"], strict=True):
        ours.data[...] = theirs.data
    cont = np.array([[0, 0], [1, 1], [1, 0], [1, 1], [1, 1.0]])
    expected = whole.forward(x=x, cont=cont)["h"].copy()
    for t in range(5):
        found = single.forward(x=x[t:t + 1], cont=cont[t:t + 1])["h"]
        np.testing.assert_allclose(found[0], expected[t], rtol=1e-4, atol=1e-6)


def test_another_number_of_steps_is_refused_and_of_streams_taken(tmp_path):
    """BVLC/caffe 4272."""
    net = lstm(tmp_path, 3)
    for name, shape in (("x", (3, 5, 3)), ("cont", (3, 5))):
        net.blobs[name].reshape(*shape)
    net.reshape()
    assert net.forward()["h"].shape == (3, 5, 4)
    for name, shape in (("x", (4, 5, 3)), ("cont", (4, 5))):
        net.blobs[name].reshape(*shape)
    with pytest.raises(UserError, match="layer 'h'.*3 steps"):
        net.reshape()


def test_a_flatten_behind_an_lstm_passes_gradients_on(tmp_path):
    """BVLC/caffe 6488."""
    text = (blob("x", 2, 2, 3) + blob("cont", 2, 2) + layer(
        "LSTM", "h", "x", "cont", more=f"recurrent_param {{ num_output: 4 {XAVIER} }}")
        + layer("Flatten", "f", "h", more="flatten_param { axis: 0 end_axis: 1 }")
        + layer("Reduction", "loss", "f", more="loss_weight: 1"))
    net = net_of(tmp_path, text)
    net.forward(x=values(2, 2, 3), cont=np.array([[0, 0], [1, 1.0]]))
    net.backward()
    assert all(parameter.diff.any() for parameter in net.params["h"])


# -- partial passes and shapes -----------------------------------------------------------------------------
def test_passes_end_at_layers_whose_blobs_have_other_names(tmp_path):
    """BVLC/caffe 2829 and 5518, and a layer with several tops."""
    text = ("force_backward: true " + blob("x", 2, 4) + inner("fc-new", "x", 6).replace('top: "fc-new"', 'top: "fc"')
            + 'layer { name: "cut" type: "Slice" bottom: "fc" top: "left" top: "right" slice_param { axis: 1 } } ')
    net = net_of(tmp_path, text)
    assert set(net.forward(end="fc-new", x=values(2, 4))) == {"fc"}
    assert set(net.forward(end="cut")) == {"left", "right"}
    assert set(net.backward(end="cut", left=np.ones((2, 3)), right=np.ones((2, 3)))) == {"fc"}
    assert set(net.backward(end="fc-new")) == {"x"}


def test_a_layer_that_is_left_out_leaves_its_blob_as_it_is(tmp_path):
    """BVLC/caffe 3414: conv1, then pool1, without the ReLU between them."""
    pool = layer("Pooling", "pool1", "relu1", more="pooling_param { kernel_size: 2 stride: 2 }")
    net = net_of(tmp_path, blob("x", 1, 1, 2, 2) + layer(
        "Convolution", "conv1", "x", more="convolution_param { num_output: 1 kernel_size: 1 "
        'weight_filler { type: "constant" value: 1 } }') + layer("ReLU", "relu1", "conv1") + pool)
    net.forward(end="conv1", x=np.full((1, 1, 2, 2), 3))
    assert net.forward(start="pool1")["pool1"] == 0
    assert net.forward(start="relu1")["pool1"] == 3


def test_batches_of_other_sizes_give_the_same_rows(tmp_path):
    """intel/caffe 150 and BVLC/caffe 6765."""
    net = net_of(tmp_path, blob("x", 3, 2, 6, 6) + layer(
        "Convolution", "c", "x", more=f"convolution_param {{ num_output: 4 kernel_size: 3 {XAVIER} }}")
        + layer("LRN", "n", "c") + inner("ip", "n", 3) + layer("Softmax", "y", "ip"))
    image = values(1, 2, 6, 6)
    first = net.forward(x=np.repeat(image, 3, 0))["y"][:1].copy()
    for n in (1, 7, 2):
        net.blobs["x"].reshape(n, 2, 6, 6)
        net.blobs["x"].data[...] = image
        np.testing.assert_allclose(net.forward()["y"], np.repeat(first, n, 0), rtol=1e-5)


def test_backward_wants_diffs_of_all_outputs(tmp_path):
    """chuckcho/video-caffe 89."""
    net = net_of(tmp_path, "force_backward: true " + blob("x", 2, 4) + inner("a", "x", 2) + inner("b", "x", 2))
    net.forward(x=values(2, 4))
    with pytest.raises(UserError, match=r"outputs \['a', 'b'\], got \['a'\]"):
        net.backward(a=np.ones((2, 2)))


def test_propagate_down_true_forces_a_gradient(tmp_path):
    """BVLC/caffe 3942."""
    net = net_of(tmp_path, blob("x", 2, 4) + inner("a", "x", 2, "propagate_down: true")
                 + layer("Reduction", "loss", "a", more="loss_weight: 1"))
    net.forward(x=values(2, 4))
    found = net.backward()["x"]
    np.testing.assert_allclose(found, np.ones((2, 2)) @ net.params["a"][0].data, rtol=1e-5)


# -- layers in Python --------------------------------------------------------------------------------------
class Loss(caffe.Layer):
    """The sum of its bottom, which divides by the loss weight as Caffe's own losses do."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data.sum()

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff[0]


class Empty(caffe.Layer):
    """A top without elements, now and then."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(0)

    def forward(self, bottom, top):
        pass


@pytest.fixture
def user_layers(monkeypatch):
    module = types.ModuleType("reported")
    module.Loss, module.Empty = Loss, Empty
    monkeypatch.setitem(sys.modules, "reported", module)


def test_a_loss_in_python_gets_its_weight(tmp_path, user_layers):
    """BVLC/caffe 5407."""
    net = net_of(tmp_path, "force_backward: true " + blob("x", 2, 3) + layer(
        "Python", "loss", "x", more='loss_weight: 0.25 python_param { module: "reported" layer: "Loss" }'))
    net.forward(x=np.ones((2, 3)))
    assert (net.backward()["x"] == 0.25).all()


def test_a_top_without_elements(tmp_path, user_layers):
    """BVLC/caffe 3625: an output that is empty."""
    net = net_of(tmp_path, blob("x", 2, 3) + layer(
        "Python", "e", "x", more='python_param { module: "reported" layer: "Empty" }'))
    assert net.forward(x=np.ones((2, 3)))["e"].shape == (0,)


# -- detection ---------------------------------------------------------------------------------------------
def test_priors_that_do_not_fit_the_predictions(tmp_path):
    """sfzhang15/FaceBoxes 51, julimueller/tl_ssd 10."""
    with pytest.raises(UserError, match="layer 'd'.*prior") as refusal:
        net_of(tmp_path, blob("loc", 1, 16) + blob("conf", 1, 8) + blob("prior", 1, 2, 12) + layer(
            "DetectionOutput", "d", "loc", "conf", "prior", more="detection_output_param { num_classes: 2 "
            "nms_param { nms_threshold: 0.5 } confidence_threshold: 0.1 }"))
    assert "\n" not in str(refusal.value)


def test_images_without_a_detection_give_a_row_of_minus_one(tmp_path):
    """lzx1413/CAFFE_SSD 3."""
    net = net_of(tmp_path, blob("loc", 1, 8) + blob("conf", 1, 4) + blob("prior", 1, 2, 8) + layer(
        "DetectionOutput", "d", "loc", "conf", "prior", more="detection_output_param { num_classes: 2 "
        "nms_param { nms_threshold: 0.5 } confidence_threshold: 0.9 }"))
    fill(net, conf=[[1, 0, 1, 0]], prior=np.tile([0.1, 0.1, 0.5, 0.5], (1, 2, 2)))
    found = net.forward()["d"]
    assert found.shape[3] == 7 and (found[..., 1:] == -1).all()


# -- the solver --------------------------------------------------------------------------------------------
def test_iter_size_is_a_larger_batch(tmp_path):
    """NVIDIA/DIGITS 1101, weiliu89/caffe 175."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["x"], file["t"] = values(16, 3), values(16, 2, seed=1)
    (tmp_path / "list").write_text(f"{tmp_path}/d.h5\n")
    found = []
    for batch, options in ((16, ""), (4, "iter_size: 4")):
        text = (f'layer {{ name: "d" type: "HDF5Data" top: "x" top: "t" hdf5_data_param {{ source: "{tmp_path}/list" '
                f"batch_size: {batch} }} }} " + inner("ip", "x", 2) + layer("EuclideanLoss", "loss", "ip", "t"))
        solver = solver_of(tmp_path, text, f"momentum: 0.9 weight_decay: 0.01 {options}")
        solver.step(3)
        found.append(solver.net.params["ip"][0].data.copy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


def test_gradients_are_clipped_by_the_norm_of_all(tmp_path):
    """NVIDIA/caffe 462: not by each parameter's own."""
    text = ('layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 dim: 2 } '
            'data_filler { type: "constant" value: 3 } } } ' + inner("a", "x", 1)
            + layer("Reduction", "loss", "a", more="loss_weight: 1"))
    solver = solver_of(tmp_path, text, "clip_gradients: 1")
    before = [blob.data.copy() for blob in solver.net.params["a"]]
    solver.step(1)
    norm = np.sqrt(3**2 + 3**2 + 1)
    for blob_, old, gradient in zip(solver.net.params["a"], before, (3, 1), strict=True):
        np.testing.assert_allclose(blob_.data, old - 0.5 * gradient / norm, rtol=1e-5)
