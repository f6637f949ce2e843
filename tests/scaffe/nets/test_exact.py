"""Labels and indices keep their values in half-precision nets."""

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe as caffe
from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.devices import Compute, load_kernels
from scaffe.proto import caffe_pb2
from tests import pretend

NET = """layer { name: "in" type: "Input" top: "x" top: "label" top: "target" input_param { shape { dim: 2 dim: 1000 }
  shape { dim: 2 } shape { dim: 2 dim: 1000 } } }
layer { name: "f" type: "Flatten" bottom: "x" top: "f" }
layer { name: "acc" type: "Accuracy" bottom: "f" bottom: "label" top: "acc" }
layer { name: "same" type: "EuclideanLoss" bottom: "f" bottom: "x" top: "same" }
layer { name: "far" type: "EuclideanLoss" bottom: "f" bottom: "target" top: "far" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "f" bottom: "label" top: "loss" }"""


INDICES = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1 dim: 40 dim: 48 } } }
layer { name: "pool" type: "Pooling" bottom: "x" top: "p" top: "mask" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "up" type: "Upsample" bottom: "p" bottom: "mask" top: "up" upsample_param { scale: 2 } }
layer { name: "up again" type: "Upsample" bottom: "p" bottom: "mask" top: "again" upsample_param { scale: 2 } }
layer { name: "most" type: "ArgMax" bottom: "x" top: "most" }
layer { name: "mixed" type: "Pooling" bottom: "x" top: "q" top: "places" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "both" type: "Eltwise" bottom: "q" bottom: "places" top: "both" eltwise_param { operation: MAX } }"""


INPUTS = """force_backward: true
layer { name: "in" type: "Input" top: "x" top: "other" input_param { shape { dim: 3 dim: 4 dim: 6 dim: 2 } } }
"""
USER = 'layer {{ name: "u" type: "Python" bottom: "{}" top: "{}" python_param {{ ' \
       'module: "tests.scaffe.pycaffe.random_nets" layer: "Triple" }} }}'


def prepared(net=NET):
    return graph.prepare(text_format.Parse(net, caffe_pb2.NetParameter()), 0)


def test_labels_and_what_splits_make_of_them_are_exact():
    takes = {"Accuracy": (1,), "EuclideanLoss": (1, 2), "SoftmaxWithLoss": (1, 2)}
    exact = graph.exact_blobs(prepared().layer, lambda kind: graph.Exactness(takes.get(kind, ())))
    assert {name.partition("_")[0] for name in exact} == {"label", "target"}  # x is an input too
    assert len(exact) == 4  # label, its two copies, target


def test_indices_are_exact_where_all_that_read_them_take_float32():
    kinds = {"Pooling": graph.Exactness(tops=(1,)), "Upsample": graph.Exactness((1,)), "ArgMax": graph.Exactness(
        tops=(0,))}
    exact = graph.exact_blobs(prepared(INDICES).layer, lambda kind: kinds.get(kind, graph.Exactness()))
    assert {name.partition("_")[0] for name in exact} == {"mask", "most"}  # not places, which Eltwise reads
    assert len(exact) == 4  # mask, its two copies, most


def test_what_converting_layers_make_is_exact_where_somebody_can_read_it():
    net = """layer { name: "in" type: "Input" top: "x" }
      layer { name: "p" type: "Proposal" bottom: "x" top: "rois" top: "scores" }
      layer { name: "roi" type: "ROIPooling" bottom: "x" bottom: "rois" top: "fine" }
      layer { name: "r" type: "ReLU" bottom: "fine" top: "y" }"""
    kinds = {"Proposal": graph.Exactness(converts=True), "ROIPooling": graph.Exactness((1,), converts=True)}
    exact = graph.exact_blobs(prepared(net).layer, lambda kind: kinds.get(kind, graph.Exactness()))
    assert exact == {"rois", "scores"}  # not fine, which ReLU reads


def test_a_layer_in_place_keeps_the_type_that_its_blob_has():
    """Slice and Convolution compute in half precision, whatever works in place on what they have written."""
    net = """layer { name: "in" type: "Input" top: "x" }
      layer { name: "s" type: "Slice" bottom: "x" top: "a" top: "b" }
      layer { name: "u" type: "Python" bottom: "a" top: "a" }
      layer { name: "c" type: "Convolution" bottom: "b" top: "c" }
      layer { name: "v" type: "Python" bottom: "c" top: "c" }
      layer { name: "w" type: "Python" bottom: "c" top: "w" }
      layer { name: "z" type: "Python" bottom: "w" top: "w" top: "z" }"""
    kinds = {"Python": graph.Exactness(converts=True)}
    exact = graph.exact_blobs(prepared(net).layer, lambda kind: kinds.get(kind, graph.Exactness()))
    assert exact == {"w", "z"}


FILL = 'num_output: 3 weight_filler { type: "xavier" }'
IN_FRONT = {
    "Convolution": f"convolution_param {{ kernel_size: 3 pad: 1 {FILL} }}",
    "Deconvolution": f"convolution_param {{ kernel_size: 2 stride: 2 {FILL} }}",
    "InnerProduct": f"inner_product_param {{ {FILL} }}",
    "Pooling": "pooling_param { kernel_size: 2 stride: 2 }",
    "Slice": 'top: "z" slice_param { slice_point: 1 }',
    "Reshape": "reshape_param { shape { dim: 0 dim: -1 } }",
    "Concat": 'bottom: "other"', "Eltwise": 'bottom: "other"', "Split": 'top: "z"',
    "Crop": 'bottom: "other" crop_param { axis: 2 }', "Tile": "tile_param { tiles: 2 }",
    "Flatten": "", "ReLU": "", "PReLU": "", "Power": "", "Dropout": "", "BatchNorm": "", "Scale": "", "Bias": ""}
WAYS = ["bf16", pytest.param("bf16 on a device", marks=pretend.needs_compiler),
        pytest.param("fp16 on a device", marks=[pretend.needs_compiler, pytest.mark.thorough])]


def run_both_ways(text, precision, monkeypatch, folder):
    """The tops, and the gradients of x and of the parameters, of the same net in float32 and in half precision."""
    (folder / "net.prototxt").write_text(INPUTS + text)
    found = []
    for each in ("fp32", precision):
        if each.endswith("device"):
            pretend.install(monkeypatch)
            caffe.set_mode_gpu()
        caffe.set_precision(each[:4])
        caffe.set_random_seed(1)
        net, rng = caffe.Net(str(folder / "net.prototxt"), caffe.TEST), np.random.default_rng(1)
        for name in net.inputs:
            net.blobs[name].data[...] = rng.uniform(0.1, 1, net.blobs[name].data.shape)
        tops = [np.array(net.forward()[name]) for name in net.outputs]
        for name in net.outputs:
            net.blobs[name].diff[...] = rng.uniform(0.1, 1, net.blobs[name].diff.shape)
        net.backward()
        diffs = [net.blobs["x"].diff, *(blob.diff for blobs in net.params.values() for blob in blobs)]
        found.append([*tops, *(np.array(diff) for diff in diffs)])
    return found


def agree(expected, found):
    for want, got in zip(expected, found, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=0.03, atol=0.02 * max(1, abs(want).max()))


@pytest.fixture
def plain_afterwards():
    yield
    caffe.set_precision("fp32")
    caffe.set_mode_cpu()


@pytest.mark.usefixtures("plain_afterwards")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", IN_FRONT)
def test_half_precision_behind_which_a_layer_works_in_place(kind, way, tmp_path, monkeypatch):
    net = f'layer {{ name: "l" type: "{kind}" bottom: "x" top: "y" {IN_FRONT[kind]} }} {USER.format("y", "y")}'
    agree(*run_both_ways(net, way, monkeypatch, tmp_path))


@pytest.mark.usefixtures("plain_afterwards")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bottoms", [("x", "y"), ("y", "x")])
def test_float32_and_half_precision_joined(bottoms, way, tmp_path, monkeypatch):
    """y is float32, as a layer in Python makes it; x is not."""
    names = " ".join(f'bottom: "{name}"' for name in bottoms)
    net = USER.format("x", "y") + f'layer {{ name: "c" type: "Concat" {names} top: "c" }}'
    agree(*run_both_ways(net, way, monkeypatch, tmp_path))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "bfloat16 on the CPU"])
def test_large_indices_are_right_in_half_precision(monkeypatch, kind):
    """Places of maxima in an image of 1,920 pixels; float16 and bfloat16 would round most of them."""
    if kind.endswith("CPU"):
        kernels, dtype = load_kernels(1, Compute(precision="bf16")), Compute(precision="bf16").dtype
    else:
        if pretend.compiler.compiler() is None:
            pytest.skip("no C++ compiler to emulate kernels with")
        pretend.install(monkeypatch)
        from scaffe.layers.kernels import cuda as kernels

        dtype = np.dtype(np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16)
    net = build_net(prepared(INDICES), Context(0, kernels, dtype, Stream(1)))
    rows, columns = np.arange(20)[:, None] * 2, np.arange(24)[None] * 2
    rows, columns = rows + (rows // 2 + columns // 2) % 2, columns + (rows // 4 + columns // 3) % 2
    image = np.zeros((40, 48), np.float32)
    image[rows, columns] = 1
    image[rows[19, 23], columns[19, 23]] = 2
    net.blobs["x"].data[...] = image.reshape(1, 1, 40, 48) if kind.endswith("CPU") else kernels.to_device(
        image.reshape(1, 1, 40, 48), dtype)
    net.forward()
    found = {name: np.asarray(kernels.to_host(net.blobs[name].data), np.float32).reshape(-1)
             for name in ("mask", "up", "again", "most")}
    np.testing.assert_array_equal(found["mask"], (rows * 48 + columns).reshape(-1))
    np.testing.assert_array_equal(found["up"], image.reshape(-1))
    np.testing.assert_array_equal(found["again"], image.reshape(-1))
    assert found["most"].tolist() == [rows[19, 23] * 48 + columns[19, 23]]


@pretend.needs_compiler
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_large_labels_are_right_in_half_precision(monkeypatch, kind):
    cupy = pretend.install(monkeypatch)
    from scaffe.layers.kernels import cuda

    dtype = np.dtype(np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16)
    net = build_net(prepared(), Context(0, cuda, dtype, Stream(1)))
    scores = np.zeros((2, 1000), np.float32)
    scores[0, 999], scores[1, 515] = 4, 4
    net.blobs["x"].data[...] = cupy.asarray(scores, dtype)
    net.blobs["label"].data[...] = cupy.asarray(np.array([999, 515], np.float32))
    net.blobs["target"].data[...] = 0
    net.forward()
    assert float(net.blobs["acc"].data) == 1
    wanted = -np.log(np.exp(4) / (np.exp(4) + 999))
    assert float(net.blobs["loss"].data) == pytest.approx(wanted, rel=2e-2)
    net.backward()
