"""``import scaffe as caffe``: nets as pycaffe shows them."""

from collections import OrderedDict

import numpy as np
import pytest

import scaffe as caffe
from scaffe.errors import LayerError
from tests.reference.common import convolution
from tests.scaffe.pycaffe.pycaffe_nets import pixels, small


def reference(net, x):
    """The net's outputs from its own parameters, by loops and float64."""
    w, b = (p.data.astype(np.float64) for p in net.params["conv"])
    y = np.maximum(convolution(x.astype(np.float64), w, b, (1, 1), (1, 1), (1, 1), 1), 0)
    ip = y.reshape(len(x), -1) @ net.params["ip"][0].data.astype(np.float64).T + net.params["ip"][1].data
    e = np.exp(ip - ip.max(axis=1, keepdims=True))
    return {"a": np.tanh(ip), "prob": e / e.sum(axis=1, keepdims=True)}


def test_what_a_net_shows(tmp_path):
    net = small(tmp_path)
    assert list(net.blobs) == ["data", "conv", "ip", "ip_ip_0_split_0", "ip_ip_0_split_1", "a", "prob"]
    assert list(net.params) == ["conv", "ip"]
    assert [blob.data.shape for blob in net.params["conv"]] == [(3, 2, 3, 3), (3,)]
    assert (net.inputs, net.outputs) == (["data"], ["a", "prob"])
    assert net.top_names == OrderedDict([("in", ["data"]), ("conv", ["conv"]), ("relu", ["conv"]), ("ip", ["ip"]), (
        "ip_ip_0_split", ["ip_ip_0_split_0", "ip_ip_0_split_1"]), ("a", ["a"]), ("prob", ["prob"])])
    assert net.bottom_names["a"] == ["ip_ip_0_split_0"]
    assert [layer.type for layer in net.layers] == ["Input", "Convolution", "ReLU", "InnerProduct", "Split", "TanH",
                                                   "Softmax"]
    assert net.layer_dict["ip"].blobs[0] is net.params["ip"][0]
    blob = net.blobs["conv"]
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (4, 3, 5, 6, 360)
    assert (net.blobs["ip"].num, net.blobs["ip"].channels, net.blobs["ip"].width) == (4, 7, 1)


def test_forward_gives_the_values_of_a_reference(tmp_path):
    net, x = small(tmp_path), pixels()
    out = net.forward(data=x)
    assert set(out) == {"a", "prob"}
    for name, expected in reference(net, x).items():
        np.testing.assert_allclose(out[name], expected, rtol=1e-5, atol=1e-6)
    assert set(net.forward(blobs=["conv"], end="ip")) == {"conv", "ip"}


def test_arrays_write_through(tmp_path):
    net, x = small(tmp_path), pixels()
    net.blobs["data"].data[...] = x
    net.params["ip"][0].data[...] *= 2
    net.params["conv"][0].data[0, 1, 2, 0] = 3
    expected = reference(net, x)
    np.testing.assert_allclose(net.forward()["prob"], expected["prob"], rtol=1e-5, atol=1e-6)
    net.blobs["ip"].data[...] = 0
    np.testing.assert_allclose(net.forward(start="ip_ip_0_split")["prob"], np.full((4, 7), 1 / 7), rtol=1e-6)


def test_backward_is_the_slope_of_forward(tmp_path):
    net, x = small(tmp_path), pixels()
    top = np.random.default_rng(1).standard_normal((4, 7)).astype(np.float32)
    net.forward(data=x)
    found = net.backward(diffs=["ip"], a=top, prob=np.zeros((4, 7)))
    assert set(found) == {"data", "ip"}
    step, direction = 1e-5, pixels(seed=2).astype(np.float64)
    values = [float((reference(net, x + sign * step * direction)["a"] * top).sum()) for sign in (1, -1)]
    assert float((found["data"] * direction).sum()) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-3)


def test_reshape_goes_through_the_net(tmp_path):
    net, x = small(tmp_path), pixels(9)
    net.blobs["data"].reshape(9, 2, 5, 6)
    net.reshape()
    assert net.blobs["prob"].data.shape == (9, 7)
    np.testing.assert_allclose(net.forward(data=x)["prob"], reference(net, x)["prob"], rtol=1e-5, atol=1e-6)


def test_whole_sets_in_batches(tmp_path):
    net, x = small(tmp_path), pixels(10)
    out = net.forward_all(blobs=["ip"], data=x)
    assert {name: len(array) for name, array in out.items()} == {"a": 10, "prob": 10, "ip": 10}
    np.testing.assert_allclose(out["prob"], reference(net, x)["prob"], rtol=1e-5, atol=1e-6)
    tops = np.ones((10, 7), np.float32)
    outs, diffs = net.forward_backward_all(data=x, a=tops, prob=tops)
    assert (outs["a"].shape, diffs["data"].shape) == ((10, 7), (10, 2, 5, 6))
    net.forward(data=x[:4])
    np.testing.assert_allclose(diffs["data"][:4], net.backward(a=tops[:4], prob=tops[:4])["data"], rtol=1e-5, atol=1e-7)


def test_saved_copied_and_shared_weights(tmp_path):
    net, x = small(tmp_path), pixels()
    expected = net.forward(data=x)["prob"].copy()
    net.save(str(tmp_path / "w.caffemodel"))
    net.save_hdf5(str(tmp_path / "w.any"))
    again = small(tmp_path, weights=str(tmp_path / "w.caffemodel"))
    old_order = caffe.Net(str(tmp_path / "small.prototxt"), str(tmp_path / "w.caffemodel"), caffe.TEST)
    hdf5, shared = small(tmp_path), small(tmp_path)
    hdf5.load_hdf5(str(tmp_path / "w.any"))
    shared.share_with(net)
    for other in (again, old_order, hdf5, shared):
        np.testing.assert_array_equal(other.forward(data=x)["prob"], expected)
    net.params["ip"][1].data[...] = 5
    assert (shared.params["ip"][1].data == 5).all()
    assert (again.params["ip"][1].data == 0).all()


def test_diffs_add_up_until_cleared(tmp_path):
    net = small(tmp_path, caffe.TRAIN)
    net.forward(data=pixels())
    diff, tops = net.params["conv"][0].diff, {"a": np.ones((4, 7)), "prob": np.zeros((4, 7))}
    net.backward(**tops)
    once = diff.copy()
    net.backward(**tops)
    np.testing.assert_allclose(diff, 2 * once, rtol=1e-5)
    assert np.abs(once).max() > 0
    net.clear_param_diffs()
    assert (diff == 0).all()


def test_callbacks_see_every_layer(tmp_path):
    net, seen = small(tmp_path), []
    for when in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net, when)(lambda index, when=when: seen.append((when, index)))
    net.forward(data=pixels())
    net.backward(a=np.ones((4, 7)), prob=np.ones((4, 7)))
    forth = [(when, i) for i in range(7) for when in ("before_forward", "after_forward")]
    back = [(when, i) for i in reversed(range(7)) for when in ("before_backward", "after_backward")]
    assert seen == forth + back


def test_memory_data(tmp_path):
    (tmp_path / "m.prototxt").write_text(
        'layer { name: "m" type: "MemoryData" top: "data" top: "label" '
        'memory_data_param { batch_size: 2 channels: 2 height: 5 width: 6 } }')
    net = caffe.Net(str(tmp_path / "m.prototxt"), caffe.TRAIN)
    x = pixels()
    net.set_input_arrays(x, np.arange(4, dtype=np.float32))
    for first in (0, 2, 0):
        out = net.forward()
        np.testing.assert_array_equal(out["data"], x[first:first + 2])
        np.testing.assert_array_equal(out["label"], [first, first + 1])
    with pytest.raises(ValueError, match="MemoryData layer first; it is Input"):
        small(tmp_path).set_input_arrays(x, np.arange(4.0))


def test_the_same_seed_gives_the_same_net(tmp_path):
    nets = []
    for seed in (3, 3, 4):
        caffe.set_random_seed(seed)
        nets.append(small(tmp_path).params["conv"][0].data)
    assert (nets[0] == nets[1]).all()
    assert not (nets[0] == nets[2]).all()


def test_a_new_seed_holds_for_the_nets_that_there_are(tmp_path):
    (tmp_path / "d.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 40 } } }'
        'layer { name: "drop" type: "Dropout" bottom: "data" top: "drop" }')
    net = caffe.Net(str(tmp_path / "d.prototxt"), caffe.TRAIN)
    kept = []
    for _ in range(2):
        caffe.set_random_seed(11)
        kept += [net.forward(data=np.ones(40))["drop"].copy() for _ in range(2)]
    assert (kept[0] == kept[2]).all() and (kept[1] == kept[3]).all()
    assert not (kept[0] == kept[1]).all()


@pytest.mark.parametrize(("call", "said"), [
    (lambda net: net.forward(dat=pixels()), "expected arrays for the net's inputs ['data'], got ['dat']"),
    (lambda net: net.forward(data=pixels(3)), "'data' has shape (4, 2, 5, 6) in the net, got (3, 2, 5, 6)"),
    (lambda net: net.forward(end="cnv"), "the net has no layer 'cnv'; it has: in, conv, relu"),
    (lambda net: net.forward_all(), "by name, got none"),
    (lambda net: caffe.Net("net.prototxt", "TEST"), "expected Net(file, phase, weights=...), got 'TEST' for the phase"),
    (lambda net: caffe.Net("none.prototxt", caffe.TEST), "none.prototxt: no such file"),
    (lambda net: net.copy_from("nowhere.caffemodel"), "nowhere.caffemodel: no such file"),
])
def test_mistakes_are_one_line(tmp_path, call, said):
    with pytest.raises(ValueError) as caught:
        call(small(tmp_path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_that_people_use_though_they_are_pycaffes_own(tmp_path):
    net = small(tmp_path)
    assert (list(net._inputs), list(net._outputs)) == ([0], [5, 6])
    assert [list(net._top_ids(i)) for i in range(len(net.layers))] == [[0], [1], [1], [2], [3, 4], [5], [6]]
    assert list(net._bottom_ids(4)) == [2]
    assert [blob.shape for blob in net._blobs] == [blob.shape for blob in net.blobs.values()]
    assert net._blob_loss_weights == [0.0] * 7
    sizes = [len(batch["data"]) for batch in net._batch({"data": pixels(9)})]
    assert sizes == [4, 4, 4]
    assert net._forward(0, 6) == 0.0


def test_nothing_in_nothing_out(tmp_path):
    out = small(tmp_path).forward_all(blobs=["ip"], data=pixels(0))
    assert {name: array.shape for name, array in out.items()} == {"a": (0,), "prob": (0,), "ip": (0,)}


@pytest.mark.parametrize(("call", "kind"), [
    (lambda net: caffe.Net("none.prototxt", caffe.TEST), RuntimeError),
    (lambda net: caffe.Net("none.prototxt", "none.caffemodel", caffe.TEST), RuntimeError),
    (lambda net: net.set_input_arrays(pixels(), np.zeros(4, np.float32)), RuntimeError),
    (lambda net: net.forward(end="cnv"), ValueError),
    (lambda net: net.forward(blobs=["cnv"]), KeyError),
    (lambda net: setattr(net.blobs["data"], "data", pixels()), AttributeError),
    (lambda net: caffe.io.load_image("none.png"), FileNotFoundError),
    (lambda net: caffe.NetSpec().conv, KeyError),
    (lambda net: caffe.NCCL.new_uid(), RuntimeError),
])
def test_mistakes_are_of_the_kinds_that_pycaffe_raises(tmp_path, call, kind):
    with pytest.raises(kind):
        call(small(tmp_path))


def test_what_a_layer_refuses_names_it_in_reshape_and_backward(tmp_path, monkeypatch):
    """A RuntimeError, as Caffe's own where it does not end the process."""
    path = tmp_path / "net.prototxt"
    path.write_text("""layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
      layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4 } }
      layer { name: "bn" type: "BatchNorm" bottom: "y" top: "z" }
      layer { name: "relu" type: "ReLU" bottom: "z" top: "z" } force_backward: true""")
    net = caffe.Net(str(path), caffe.TRAIN)
    net.blobs["x"].reshape(2, 5)
    with pytest.raises(RuntimeError, match=r"^layer 'ip' \(InnerProduct\): the bottom \(2, 5\) gives 5 inputs"):
        net.reshape()
    net.blobs["x"].reshape(2, 3)
    for name, method in (("ip", "backward"), ("bn", "backward")):
        layer = net._net.node(name).layer

        def refuse(*blobs):
            raise LayerError("no")

        monkeypatch.setattr(layer, method, refuse)
        net.forward()
        with pytest.raises(RuntimeError, match=rf"^layer '{name}' \(\w+\): no$"):
            net.backward()
        monkeypatch.undo()
