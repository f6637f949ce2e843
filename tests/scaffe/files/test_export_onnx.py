"""export-onnx: every layer type that has an ONNX form, run by onnxruntime beside ours."""

import numpy as np
import pytest

import scaffe as caffe
from scaffe.export import onnx_model
from scaffe.export.converters import CONVERTERS
from tests.scaffe.files.export_cases import ALL, CASES, X, prototxt, values_of, with_statistics

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

def test_every_type_with_an_onnx_form_has_a_case():
    assert sorted(CASES) == sorted(CONVERTERS)


def compare(tmp_path, text, values):
    """Our outputs and onnxruntime's."""
    (tmp_path / "net.prototxt").write_text(text)
    caffe.set_random_seed(3)
    net = with_statistics(caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST))
    content = onnx_model(net._net).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    expected = net.forward(**values)
    names = [output.name for output in session.get_outputs()]
    assert sorted(names) == sorted(expected)
    for name, found in zip(names, session.run(None, values)):
        assert found.shape == expected[name].shape
        np.testing.assert_allclose(found, expected[name], rtol=5e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("kind", "case"), ALL, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(ALL)])
def test_a_layer(tmp_path, kind, case):
    options, *shapes = case
    compare(tmp_path, prototxt(kind, options, shapes), values_of(kind, shapes))


@pytest.mark.parametrize("kind", ["ReLU", "Exp", "Swish", "BatchNorm", "Normalize", "Scale", "Clip", "Dropout"])
def test_a_layer_in_place(tmp_path, kind):
    case = CASES[kind][0]
    values = {"b0": np.random.default_rng(8).standard_normal(X).astype(np.float32)}
    text = prototxt(kind, case, [X], in_place=True)
    compare(tmp_path, text + 'layer { name: "end" type: "TanH" bottom: "b0" top: "end" }', values)


@pytest.mark.parametrize(("text", "said"), [
    (prototxt("Silence", "", [X]).replace('layer { name: "copy" type: "AbsVal" bottom: "b0" top: "copy" }', ""),
     "the net has no outputs"),
    (prototxt("ReLU", "", [X], in_place=True), "blob 'b0' is an input and, changed in place, an output"),
    (prototxt("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }", [X]), "'layer': only MAX without a mask"),
])
def test_what_has_no_onnx_form(tmp_path, text, said):
    (tmp_path / "net.prototxt").write_text(text)
    with pytest.raises(ValueError, match=said):
        onnx_model(caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST)._net)
