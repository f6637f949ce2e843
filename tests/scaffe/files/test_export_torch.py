"""export-torch without PyTorch: what is written, and what is refused. tests/torch runs what is written."""

import ast

import numpy as np
import pytest

import scaffe as caffe
from scaffe.cli import main as cli
from scaffe.errors import UserError
from scaffe.export.torch_converters import CONVERTERS
from scaffe.export.torch_file import torch_text
from tests import pretend
from tests.scaffe.files.export_cases import ALL, CASES, X, prototxt
from tests.scaffe.files.test_safetensors import parsed
from tests.scaffe.pycaffe.pycaffe_nets import SMALL, small

pytest.importorskip("safetensors")
SSD = {"PriorBox", "PriorBoxClustered", "DetectionOutput"}  # which test_ssd of tests/torch has


def test_every_type_with_a_pytorch_form_has_a_case():
    assert sorted(CASES) == sorted(set(CONVERTERS) - SSD)


def written(tmp_path, text, name="net"):
    """The module's text, and what it was made of."""
    (tmp_path / "n.prototxt").write_text(text)
    return torch_text(caffe.Net(str(tmp_path / "n.prototxt"), caffe.TEST)._net, name)


@pytest.mark.parametrize(("kind", "case"), ALL, ids=[f"{kind}-{i}" for i, (kind, _) in enumerate(ALL)])
def test_the_file_is_python(tmp_path, kind, case):
    options, *shapes = case
    text, code = written(tmp_path, prototxt(kind, options, shapes))
    ast.parse(text)
    assert max(map(len, text.splitlines())) <= 120
    declared = {line.split(" = ")[0].removeprefix("self.") for line in code.made if " = " in line}
    assert {name.split(".")[0] for name in code.tensors} >= declared - {"layer"}


def test_the_text_of_a_small_net(tmp_path):
    """Layers are PyTorch's; batch norm takes the factors of the Scale layer behind it; names that Python has change."""
    text, code = written(tmp_path, """name: "Small net" input: "data" input_shape { dim: 2 dim: 3 dim: 9 dim: 9 }
        layer { name: "c/1" type: "Convolution" bottom: "data" top: "class" convolution_param { num_output: 6
                kernel_h: 3 kernel_w: 1 stride: 2 pad: 1 group: 3 bias_term: false } }
        layer { name: "bn" type: "BatchNorm" bottom: "class" top: "class" }
        layer { name: "sc" type: "Scale" bottom: "class" top: "class" scale_param { bias_term: true } }
        layer { name: "pool" type: "Pooling" bottom: "class" top: "pool" pooling_param { kernel_size: 3 stride: 2 } }
        layer { name: "eval" type: "InnerProduct" bottom: "pool" top: "a" inner_product_param { num_output: 5 } }
        layer { name: "b" type: "Power" bottom: "a" top: "b" power_param { scale: 0.1 shift: 1 } }
        layer { name: "c" type: "Sigmoid" bottom: "a" top: "c" }""")
    body = [line.strip() for line in text[text.index("class "):text.index("def load")].splitlines() if line.strip()]
    assert body == [
        "class Small_net(nn.Module):", "def __init__(self):", "super().__init__()",
        "self.c_1 = nn.Conv2d(3, 6, (3, 1), stride=2, padding=1, groups=3, bias=False)",
        "self.bn = nn.BatchNorm2d(6, eps=1e-05, momentum=0.001)", "self.eval_ = nn.Linear(36, 5)",
        "def forward(self, data):", "class_ = self.c_1(data)", "class_ = self.bn(class_)",
        "pool = F.max_pool2d(class_, 3, 2, ceil_mode=True)", "a = self.eval_(pool.flatten(1))",
        "b = (1.0 + 0.1 * a)", "c = torch.sigmoid(a)", "return {'b': b, 'c': c}"]
    assert {name: array.shape for name, array in code.tensors.items()} == {
        "c_1.weight": (6, 1, 3, 1), "bn.running_mean": (6,), "bn.running_var": (6,), "bn.num_batches_tracked": (),
        "bn.weight": (6,), "bn.bias": (6,), "eval_.weight": (5, 36), "eval_.bias": (5,)}


def test_long_lines_are_broken_where_python_allows_it(tmp_path):
    long, tops = "n" * 50, "".join(f' top: "{"t" * 40}{i}"' for i in range(4))
    text, _ = written(tmp_path, f"""{prototxt("Input", "", [X]).replace("copy", long)}
        layer {{ name: "more" type: "TanH" bottom: "{long}" top: "{long}2" }}
        layer {{ name: "sum" type: "Eltwise" bottom: "{long}" bottom: "{long}2" bottom: "b0" top: "{long}3" }}
        layer {{ name: "parts" type: "Slice" bottom: "{long}3" {tops} }}""")
    ast.parse(text)
    assert f"        {long}3 = ({long} +\n            {long}2 + b0)" in text


def test_names_from_a_file_stay_names(tmp_path):
    """Nothing in a prototxt becomes code."""
    name = 'x\\"\\"\\"); import os; os.abort() #\\n'
    text, _ = written(tmp_path, f'name: "{name}" ' + prototxt("ReLU", "", [X]).replace('"t0"', f'"{name}"')
                      + 'layer { name: "more" type: "TanH" bottom: "b0" top: "y" }')
    tree = ast.parse(text)
    assert {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))} == {
        "x______import_os__os_abort_____", "load"}
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert imported == ["torch", "torch.nn.functional"]


def test_the_command_and_the_function_write_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    caffe.set_random_seed(3)
    net = small(tmp_path)
    net.save("w.safetensors")
    caffe.export_torch(net, "one.py")
    assert cli.main(["export-torch", "small.prototxt", "w.safetensors", "two.py"]) == 0
    assert capsys.readouterr().out == "Wrote two.py and two.safetensors\n"
    texts = [(tmp_path / f"{name}.py").read_text().replace(name, "") for name in ("one", "two")]
    assert texts[0] == texts[1]
    tensors, about = parsed(tmp_path / "two.safetensors")
    assert about["format"] == "pt"
    assert sorted(tensors) == ["conv.bias", "conv.weight", "ip.bias", "ip.weight"]
    assert (tensors["ip.weight"] == net.params["ip"][0].data).all()
    others, _ = parsed(tmp_path / "one.safetensors")
    assert all((others[name] == array).all() for name, array in tensors.items())


@pretend.needs_compiler
def test_a_net_on_a_device(tmp_path, monkeypatch):
    """What was written there, too, by way of the host."""
    pretend.install(monkeypatch)
    caffe.set_mode_gpu()
    try:
        net = small(tmp_path)
        net.params["ip"][0].data[0] = 5
        caffe.export_torch(net, tmp_path / "one.py")
    finally:
        caffe.set_mode_cpu()
    tensors, _ = parsed(tmp_path / "one.safetensors")
    assert (tensors["ip.weight"][0] == 5).all()
    assert (tensors["conv.weight"] == net.params["conv"][0].data).all()


@pytest.mark.parametrize(("text", "name", "said"), [
    (SMALL, "net.txt", "net.txt: expected the name of a Python module, such as net.py"),
    (SMALL, "my net.py", "expected the name of a Python module"),
    (prototxt("SPP", "spp_param { pyramid_height: 2 }", [X]), "n.py",
     r"layer 'layer' \(SPP\) has no PyTorch form; known: "),
    ('layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 1 } } }', "n.py", "has no inputs"),
    (prototxt("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }", [X]), "n.py", "only MAX without a mask")])
def test_what_is_refused(tmp_path, text, name, said):
    (tmp_path / "n.prototxt").write_text(text)
    net = caffe.Net(str(tmp_path / "n.prototxt"), caffe.TEST)
    with pytest.raises(UserError, match=said):
        caffe.export_torch(net, tmp_path / name)
    assert not list(tmp_path.glob("*.py"))
    assert np.size(list(tmp_path.glob("*.safetensors"))) == 0
