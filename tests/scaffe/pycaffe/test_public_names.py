"""Every public name of BVLC's pycaffe, and those that SSD's and FlowNet's add: there, with the same parameters."""

import importlib
import inspect
import io
import subprocess
import sys
import types

import numpy as np
import pytest

import scaffe as caffe
from scaffe.errors import LayerError
from scaffe.layers.python import UserLayer
from scaffe.proto import caffe_pb2
from tests.scaffe.pycaffe.pycaffe_nets import LEARNING, small
from tests.scaffe.runs import ROOT

NAMES = {
    "": """Net SGDSolver NesterovSolver AdaGradSolver RMSPropSolver AdaDeltaSolver AdamSolver NCCL Timer init_log log
        set_mode_cpu set_mode_gpu set_device Layer get_solver layer_type_list set_random_seed solver_count
        set_solver_count solver_rank set_solver_rank set_multiprocess has_nccl __version__ TRAIN TEST Classifier
        Detector io layers params NetSpec to_proto pycaffe _caffe proto net_spec classifier detector draw coord_map
        set_logging_disabled""",
    "pycaffe": "Net SGDSolver NesterovSolver AdaGradSolver RMSPropSolver AdaDeltaSolver AdamSolver NCCL Timer",
    "_caffe": """Net Blob Layer Solver SGDSolver NesterovSolver AdaGradSolver RMSPropSolver AdaDeltaSolver AdamSolver
        SolverParameter LayerParameter BlobVec RawBlobVec LayerVec StringVec IntVec DtypeVec NetVec BoolVec NCCL Timer
        init_log log has_nccl set_mode_cpu set_mode_gpu set_random_seed set_device solver_count set_solver_count
        solver_rank set_solver_rank set_multiprocess layer_type_list get_solver __version__""",
    "io": """blobproto_to_array array_to_blobproto arraylist_to_blobprotovector_str blobprotovector_str_to_arraylist
        array_to_datum datum_to_array Transformer load_image resize_image oversample caffe_pb2""",
    "net_spec": "param_name_dict to_proto assign_proto Top Function NetSpec Layers Parameters layers params",
    "classifier": "Classifier",
    "detector": "Detector",
    "draw": """LAYER_STYLE_DEFAULT NEURON_LAYER_STYLE BLOB_STYLE get_pooling_types_dict get_edge_label get_layer_lr_mult
        get_layer_label choose_color_by_layertype get_pydot_graph draw_net draw_net_to_file""",
    "coord_map": """PASS_THROUGH_LAYERS conv_params crop_params UndefinedMapException coord_map AxisMismatchException
        compose inverse coord_map_from_to crop""",
    "proto.caffe_pb2": """DESCRIPTOR BlobShape BlobProto BlobProtoVector Datum FillerParameter NetParameter
        SolverParameter SolverState Phase TRAIN TEST NetState NetStateRule ParamSpec LayerParameter
        TransformationParameter LossParameter AccuracyParameter ArgMaxParameter ClipParameter ConcatParameter
        BatchNormParameter BiasParameter ContrastiveLossParameter ConvolutionParameter CropParameter DataParameter
        DropoutParameter DummyDataParameter EltwiseParameter ELUParameter EmbedParameter ExpParameter FlattenParameter
        HDF5DataParameter HDF5OutputParameter HingeLossParameter ImageDataParameter InfogainLossParameter
        InnerProductParameter InputParameter LogParameter LRNParameter MemoryDataParameter MVNParameter
        ParameterParameter PoolingParameter PowerParameter PythonParameter RecurrentParameter ReductionParameter
        ReLUParameter ReshapeParameter ScaleParameter SigmoidParameter SliceParameter SoftmaxParameter SwishParameter
        TanHParameter TileParameter ThresholdParameter WindowDataParameter SPPParameter V1LayerParameter
        V0LayerParameter PReLUParameter LabelMapItem LabelMap BatchSampler EmitConstraint NormalizedBBox
        AnnotatedDatum ResizeParameter DistortionParameter ExpansionParameter AnnotatedDataParameter
        NonMaximumSuppressionParameter SaveOutputParameter DetectionOutputParameter DetectionEvaluateParameter
        MultiBoxLossParameter NormalizeParameter PermuteParameter PriorBoxParameter""",
}
SIGNATURES = """
io.blobproto_to_array(blob, return_diff=False)
io.array_to_blobproto(arr, diff=None)
io.arraylist_to_blobprotovector_str(arraylist)
io.blobprotovector_str_to_arraylist(str)
io.array_to_datum(arr, label=None)
io.datum_to_array(datum)
io.Transformer(inputs)
io.Transformer.preprocess(self, in_, data)
io.Transformer.deprocess(self, in_, data)
io.Transformer.set_transpose(self, in_, order)
io.Transformer.set_channel_swap(self, in_, order)
io.Transformer.set_raw_scale(self, in_, scale)
io.Transformer.set_mean(self, in_, mean)
io.Transformer.set_input_scale(self, in_, scale)
io.load_image(filename, color=True)
io.resize_image(im, new_dims, interp_order=1)
io.oversample(images, crop_dims)
net_spec.param_name_dict()
net_spec.to_proto(*tops)
net_spec.assign_proto(proto, name, val)
net_spec.Top(fn, n)
net_spec.Top.to_proto(self)
net_spec.Function(type_name, inputs, params)
net_spec.NetSpec()
net_spec.NetSpec.to_proto(self)
net_spec.NetSpec.keys(self)
net_spec.NetSpec.vals(self)
net_spec.NetSpec.update(self, name, params)
classifier.Classifier(model_file, pretrained_file, image_dims=None, mean=None, input_scale=None, raw_scale=None, \
channel_swap=None)
classifier.Classifier.predict(self, inputs, oversample=True)
detector.Detector(model_file, pretrained_file, mean=None, input_scale=None, raw_scale=None, channel_swap=None, \
context_pad=None)
detector.Detector.detect_windows(self, images_windows)
detector.Detector.detect_selective_search(self, image_fnames)
detector.Detector.crop(self, im, window)
detector.Detector.configure_crop(self, context_pad)
draw.get_pooling_types_dict()
draw.get_edge_label(layer)
draw.get_layer_lr_mult(layer)
draw.get_layer_label(layer, rankdir, display_lrm=False)
draw.choose_color_by_layertype(layertype)
draw.get_pydot_graph(caffe_net, rankdir, label_edges=True, phase=None, display_lrm=False)
draw.draw_net(caffe_net, rankdir, ext='png', phase=None, display_lrm=False)
draw.draw_net_to_file(caffe_net, filename, rankdir='LR', phase=None, display_lrm=False)
coord_map.conv_params(fn)
coord_map.crop_params(fn)
coord_map.coord_map(fn)
coord_map.compose(base_map, next_map)
coord_map.inverse(coord_map)
coord_map.coord_map_from_to(top_from, top_to)
coord_map.crop(top_from, top_to)
Net.forward(self, blobs=None, start=None, end=None, **kwargs)
Net.backward(self, diffs=None, start=None, end=None, **kwargs)
Net.forward_all(self, blobs=None, **kwargs)
Net.forward_backward_all(self, blobs=None, diffs=None, **kwargs)
Net.set_input_arrays(self, data, labels)
"""
POSITIONAL = {  # of the C++ module: how many arguments each takes, by place
    "Net": (2, 3, 4, 5), "Net.copy_from": (2,), "Net.share_with": (2,), "Net.save": (2,), "Net.save_hdf5": (2,),
    "Net.load_hdf5": (2,), "Net.reshape": (1,), "Net.clear_param_diffs": (1,), "Net.before_forward": (2,),
    "Net.after_forward": (2,), "Net.before_backward": (2,), "Net.after_backward": (2,), "Net._forward": (3,),
    "Net._backward": (3,), "Net._batch": (2,), "SGDSolver": (1,), "AdamSolver": (1,), "get_solver": (1,),
    "SGDSolver.step": (2,), "SGDSolver.solve": (1, 2), "SGDSolver.restore": (2,), "SGDSolver.snapshot": (1,),
    "SGDSolver.apply_update": (1,), "SGDSolver.share_weights": (2,), "SGDSolver.add_callback": (3,), "NCCL": (2,),
    "Timer": (0,), "Timer.start": (1,), "Timer.stop": (1,), "init_log": (0, 1, 2), "has_nccl": (0,), "log": (1,),
    "set_mode_cpu": (0,), "set_mode_gpu": (0,), "set_device": (1,), "set_random_seed": (1,), "solver_count": (0,),
    "set_solver_count": (1,), "solver_rank": (0,), "set_solver_rank": (1,), "set_multiprocess": (1,),
    "layer_type_list": (0,), "Layer.setup": (3,), "Layer.reshape": (3,), "set_logging_disabled": (0,),
}
ATTRIBUTES = {
    "Net": """blobs params layers layer_dict top_names bottom_names inputs outputs blob_loss_weights _blobs
        _blob_loss_weights _blob_names _layer_names _inputs _outputs _bottom_ids _top_ids""",
    "Blob": "data diff shape num channels height width count reshape",
    "Layer": "blobs setup reshape type",
    "Solver": """net test_nets iter lr param add_callback solve step restore snapshot share_weights apply_update""",
    "Timer": "start stop ms",
}


def found(path: str) -> object:
    module, _, name = path.rpartition(".")
    if module and module[0].islower():  # a module's, or of a class of a module
        home, *kind = module.split(".")
        owner = importlib.import_module(f"scaffe.{home}")
        return getattr(getattr(owner, *kind) if kind else owner, name)
    return getattr(getattr(caffe, module) if module else caffe, name)


@pytest.mark.parametrize("module", NAMES)
def test_names(module: str) -> None:
    home = importlib.import_module(f"scaffe.{module}" if module else "scaffe")
    assert not [name for name in NAMES[module].split() if not hasattr(home, name)]


@pytest.mark.parametrize("line", SIGNATURES.split("\n")[1:-1])
def test_signatures(line: str) -> None:
    """The same names, in the same order, with the same defaults; what ours take beyond them has defaults."""
    path, _, parameters = line[:-1].partition("(")
    theirs = list(inspect.signature(eval(f"lambda {parameters}: 0")).parameters.values())
    ours = list(inspect.signature(found(path)).parameters.values())  # type: ignore[arg-type]
    for their, our in zip(theirs, ours, strict=False):
        assert our.kind == their.kind
        if their.kind == their.POSITIONAL_OR_KEYWORD:
            assert our.name == their.name
            assert their.default in (their.empty, our.default)
    assert len(ours) >= len(theirs)
    assert all(our.default is not our.empty for our in ours[len(theirs):])


@pytest.mark.parametrize("path", POSITIONAL)
def test_arguments_by_place(path: str) -> None:
    call = found(path)
    for n_arguments in POSITIONAL[path]:
        inspect.signature(call).bind(*range(n_arguments))  # type: ignore[arg-type]


def test_nets_arguments_by_name_and_in_the_old_order() -> None:
    signature = inspect.signature(caffe.Net)
    signature.bind(network_file="n", phase=1, level=0, stages=None, weights=None)
    signature.bind("n", "w", caffe.TEST)


def test_attributes(tmp_path) -> None:
    net = small(tmp_path)
    (tmp_path / "learning.prototxt").write_text(LEARNING)
    (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path}/learning.prototxt" base_lr: 0.1 lr_policy: "fixed"')
    owners = {"Net": net, "Blob": net.blobs["data"], "Layer": net.layers[0], "Timer": caffe.Timer(),
              "Solver": caffe.SGDSolver(str(tmp_path / "solver.prototxt"))}
    for kind, names in ATTRIBUTES.items():
        assert not [name for name in names.split() if not hasattr(owners[kind], name)], kind


def test_types_of_the_c_module(tmp_path) -> None:
    """merge_bn.py and its kind ask ``type(net.params[key]) is caffe._caffe.BlobVec``."""
    net = small(tmp_path)
    assert {type(blobs) for blobs in net.params.values()} == {caffe._caffe.BlobVec}
    assert type(net._blobs) is type(net.layers[1].blobs) is caffe._caffe.BlobVec
    assert isinstance(net.layers[1], caffe.Layer)
    assert isinstance(net.blobs["data"], caffe._caffe.Blob)
    assert isinstance(net, caffe._caffe.Net) and issubclass(caffe.AdamSolver, caffe._caffe.Solver)
    with pytest.raises(LayerError, match=r"^add_blob adds parameters to a layer written in Python"):
        net.params["conv"].add_blob(3)


def test_bottoms_of_a_layer_in_python_are_a_raw_blob_vec(tmp_path, monkeypatch) -> None:
    seen = []

    class Look(UserLayer):
        def reshape(self, bottom, top):
            top[0].reshape(*bottom[0].shape)

        def forward(self, bottom, top):
            seen.extend([type(bottom), type(top), type(self.blobs)])

    module = types.ModuleType("looking")
    module.Look = Look
    monkeypatch.setitem(sys.modules, "looking", module)
    (tmp_path / "n").write_text("""layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }
        layer { name: "l" type: "Python" bottom: "x" top: "y" python_param { module: "looking" layer: "Look" } }""")
    caffe.Net(str(tmp_path / "n"), caffe.TEST).forward()
    assert seen == [caffe._caffe.RawBlobVec, caffe._caffe.RawBlobVec, caffe._caffe.BlobVec]


def test_as_imports_of_caffe() -> None:
    code = """import scaffe; scaffe.install_as_caffe()
import caffe, caffe._caffe
from caffe._caffe import RawBlobVec, log as LOG, Layer
from caffe.pycaffe import *
from caffe.pycaffe import Net as Same
assert caffe._caffe.Net is Net is Same is caffe.Net and caffe._caffe is scaffe._caffe and Layer is caffe.Layer
assert SGDSolver is caffe.SGDSolver"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# -- caffe_pb2 ---------------------------------------------------------------------------------------------
def test_enums_of_the_schema() -> None:
    assert caffe_pb2.Phase.Value("TRAIN") == caffe_pb2.Phase.TRAIN == caffe_pb2.TRAIN == 0
    assert caffe_pb2.Phase.Name(1) == "TEST"
    assert caffe_pb2.Phase.items() == [("TRAIN", 0), ("TEST", 1)]
    assert caffe_pb2.Phase.DESCRIPTOR.values_by_name["TEST"].number == 1
    assert caffe_pb2.EmitConstraint.CENTER == 0 and caffe_pb2.EmitConstraint.EmitType.Name(1) == "MIN_OVERLAP"
    with pytest.raises(ValueError, match="TRIAN"):
        caffe_pb2.Phase.Value("TRIAN")
    types_by_name = caffe_pb2.DESCRIPTOR.message_types_by_name
    assert types_by_name["LayerParameter"].fields_by_name["name"].number == 1
    assert set(caffe_pb2.DESCRIPTOR.enum_types_by_name) == {"Phase"}


# -- NetSpec -----------------------------------------------------------------------------------------------
def test_net_specs_of_ssd() -> None:
    n = caffe.NetSpec()
    n.data = caffe.layers.DummyData(shape={"dim": 3})
    n.conv = caffe.layers.Convolution(n.data, kernel_size=3, num_output=2, ntop=1)
    n["a/b"] = caffe.layers.ReLU(n.conv, in_place=True)
    assert n.keys() == ["data", "conv", "a/b"]
    assert n.vals() == [n.data, n.conv, n["a/b"]]
    n.update("conv", {"num_output": 5, "stride": 2, "param": [{"lr_mult": 0.5}]})
    conv = n.to_proto().layer[1]
    assert (conv.convolution_param.num_output, conv.convolution_param.stride[0], conv.param[0].lr_mult) == (5, 2, 0.5)
    assert conv.convolution_param.kernel_size[0] == 3
    del n.conv, n["a/b"]
    assert n.keys() == ["data"]
    for delete in (lambda: delattr(n, "conv"), lambda: n.__delitem__("conv"), lambda: n.update("conv", {})):
        with pytest.raises(KeyError, match="conv"):
            delete()


# -- io ----------------------------------------------------------------------------------------------------
def test_images_from_files_that_are_open(tmp_path) -> None:
    cv2 = pytest.importorskip("cv2")
    pixels = np.random.default_rng(3).integers(0, 256, (4, 5, 3), np.uint8)
    path = tmp_path / "a.png"
    cv2.imwrite(str(path), pixels)
    expected = pixels[:, :, ::-1] / np.float32(255)
    with path.open("rb") as file:
        np.testing.assert_allclose(caffe.io.load_image(file), expected, rtol=1e-6)
    np.testing.assert_allclose(caffe.io.load_image(io.BytesIO(path.read_bytes())), expected, rtol=1e-6)
    np.testing.assert_allclose(caffe.io.load_image(path), expected, rtol=1e-6)
    (tmp_path / "empty.png").touch()
    with pytest.raises(ValueError, match="not an image"):
        caffe.io.load_image(str(tmp_path / "empty.png"))
    with pytest.raises(ValueError, match="not an image"):
        caffe.io.load_image(io.BytesIO(b"none"))
    with pytest.raises(ValueError, match="opened with 'rb'"):
        caffe.io.load_image(io.StringIO("text"))


# -- draw --------------------------------------------------------------------------------------------------
DRAWN = """name: "drawn"
layer { name: "d" type: "Data" top: "x" include { phase: TRAIN } data_param { batch_size: 64 } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" param { lr_mult: 1 } param { lr_mult: 2 }
        convolution_param { num_output: 20 kernel_size: 5 stride: 2 } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" param { lr_mult: 3 }
        inner_product_param { num_output: 7 } }
"""


@pytest.fixture
def drawn() -> object:
    from google.protobuf import text_format

    return text_format.Parse(DRAWN, caffe_pb2.NetParameter())


def test_labels_and_colours(drawn) -> None:
    draw, layers = caffe.draw, drawn.layer
    assert draw.get_pooling_types_dict() == {0: "MAX", 1: "AVE", 2: "STOCHASTIC"}
    assert [draw.get_edge_label(layer) for layer in layers] == ["Batch 64", "20", '""', '""', "7"]
    assert [draw.choose_color_by_layertype(layer.type) for layer in layers] == [
        "#6495ED", "#FF5050", "#6495ED", "#FF9900", "#CC33FF"]
    assert [draw.get_layer_lr_mult(layers[i]) for i in (1, 4)] == [(1, 2), (3, 1)]
    with pytest.raises(ValueError, match="ReLU layers have no learning rate"):
        draw.get_layer_lr_mult(layers[2])
    assert draw.get_layer_label(layers[1], "LR") == r'"c\n(Convolution)\nkernel size: 5\nstride: 2\npad: 0"'
    assert draw.get_layer_label(layers[3], "TB") == '"p (Pooling AVE) kernel size: 3 stride: 2 pad: 1"'
    assert draw.get_layer_label(layers[4], "TB", display_lrm=True) == '"ip (InnerProduct) lr mult: 3.0, 1.0"'


class Recorded(list):
    """In place of each of pydot's classes: what it was made of."""

    def __init__(self, *arguments, **options):
        super().__init__(arguments)
        self.options, self.nodes, self.edges = options, [], []
        self.add_node, self.add_edge = self.nodes.append, self.edges.append


def test_graphs_for_pydot(drawn, monkeypatch) -> None:
    for name in ("pydotplus", "pydot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match="^get_pydot_graph needs pydot: pip install pydot"):
        caffe.draw.get_pydot_graph(drawn, "LR")
    monkeypatch.setitem(sys.modules, "pydot", types.SimpleNamespace(Dot=Recorded, Node=Recorded, Edge=Recorded))
    graph = caffe.draw.get_pydot_graph(drawn, "TB")
    assert (graph[0], graph.options) == ("drawn", {"graph_type": "digraph", "rankdir": "TB"})
    assert [node[0].split(" ")[0].strip('"') for node in graph.nodes] == ["d", "x", "c", "c", "r", "p", "p", "ip", "ip"]
    ends = [(edge[0][0].split()[0].strip('"'), edge[1][0].split()[0].strip('"')) for edge in graph.edges]
    assert ends == [("d", "x"), ("x", "c"), ("c", "c"), ("c", "r"), ("r", "c"), ("c", "p"), ("p", "p"), ("p", "ip"),
                    ("ip", "ip")]
    assert [edge.options["label"] for edge in graph.edges][:3] == ["Batch 64", '""', "20"]
    relu, conv = (next(node for node in graph.nodes if kind in node[0]) for kind in ("(ReLU)", "(Convolution)"))
    assert (relu.options["fillcolor"], conv.options["fillcolor"]) == ("#90EE90", "#FF5050")
    tested = caffe.draw.get_pydot_graph(drawn, "TB", label_edges=False, phase=caffe.TEST)
    assert not any("(Data)" in node[0] for node in tested.nodes)
    assert {edge.options["label"] for edge in tested.edges} == {'""'}


def test_an_unknown_direction_is_top_to_bottom(drawn) -> None:
    assert caffe.draw.draw_net(drawn, "UP", "svg") == caffe.draw.draw_net(drawn, "TB", "svg")
    assert caffe.draw.draw_net(drawn, "UP", "svg") != caffe.draw.draw_net(drawn, "LR", "svg")


# -- the log -----------------------------------------------------------------------------------------------
def test_logging_disabled(capfd) -> None:
    try:
        caffe.set_logging_disabled()
        caffe.log("an information")
    finally:
        caffe.init_log()
    caffe.log("another")
    said = capfd.readouterr().err
    assert "an information" not in said and "another" in said
