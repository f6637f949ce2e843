"""Nets as PyTorch modules, and blobs as tensors, in an environment that has PyTorch (`make test-torch`)."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import scaffe as caffe
from benchmarks.nets.prototxt import deploy
from tests.mpirun import ROOT
from tests.scaffe.files.export_cases import ALL, prototxt, values_of, with_statistics
from tests.scaffe.nets.test_ssd_nets import CLASSES, ssd300
from tests.scaffe.pycaffe.pycaffe_nets import SMALL

PYTHON = os.environ.get("TORCH_PYTHON", "")
BOUND = 1e-5  # of the largest output

pytestmark = pytest.mark.skipif(not PYTHON, reason="make test-torch runs these")


def export(folder, text, values=None):
    """Write a net of random weights as a module, with its inputs and our outputs."""
    folder.mkdir()
    (folder / "net.prototxt").write_text(text)
    caffe.set_random_seed(3)
    net = with_statistics(caffe.Net(str(folder / "net.prototxt"), caffe.TEST))
    rng = np.random.default_rng(5)
    for layer in net.layers[:-1 if values else None]:
        if layer.type == "BatchNorm":
            mean, variance, factor = layer.blobs
            mean.data[...], variance.data[...] = rng.normal(0, 0.1, mean.shape), rng.uniform(0.5, 2, variance.shape)
            factor.data[...] = 1
    values = values or {name: rng.standard_normal(net.blobs[name].shape).astype(np.float32) for name in net.inputs}
    caffe.export_torch(net, folder / "net.py")
    np.savez(folder / "inputs.npz", **values)
    np.savez(folder / "outputs.npz", **net.forward(**values))
    return str(folder)


def differences(folders):
    """By folder, the largest relative difference."""
    done = subprocess.run([PYTHON, str(Path(__file__).with_name("compare_exports.py")), *folders], capture_output=True,
                          text=True, timeout=600, check=False, env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    return {folder: said[folder] for folder in folders}


def check(folders):
    wrong = {folder: said for folder, said in differences(folders).items()
             if said[:1] not in "0123456789" or not float(said) <= BOUND}
    assert not wrong


@pytest.mark.parametrize("name", ["lenet", "cifar10_quick", "caffenet", "googlenet", "resnet50", "mobilenet", "vgg16"])
def test_a_net(tmp_path, name):
    """Up to what the softmax gets: behind it a thousand numbers near 0.001 would hide any difference."""
    text = deploy(name, 2)
    check([export(tmp_path / name, text[:text.index('layer { name: "prob"')]), export(tmp_path / "whole", text)])


def test_alexnet(tmp_path):
    """CaffeNet with its normalization before its pooling."""
    text = deploy("caffenet", 1)
    for place, bottom in (("1", "conv1"), ("2", "conv2")):
        for old, new in ((f'bottom: "{bottom}" top: "pool{place}"', f'bottom: "norm{place}" top: "pool{place}"'),
                         (f'bottom: "pool{place}" top: "norm{place}"', f'bottom: "{bottom}" top: "norm{place}"'),
                         (f'bottom: "norm{place}" top: "conv', f'bottom: "pool{place}" top: "conv')):
            assert text.count(old) == 1
            text = text.replace(old, new)
    lines = text.splitlines()
    for place in "12":
        pool, norm = (next(i for i, line in enumerate(lines) if f'top: "{kind}{place}"' in line)
                      for kind in ("pool", "norm"))
        lines[pool], lines[norm] = lines[norm], lines[pool]
    check([export(tmp_path / "alexnet", "\n".join(lines))])


def test_ssd(tmp_path):
    """Its heads, boxes, softmax and detections, best of each class and of all.

    With SSD's factor 20 many scores of random weights are 1, and rounding decides which box comes first.
    """
    text = "\n".join(line for line in ssd300().splitlines() if 'top: "label"' not in line)
    text = text[:text.index('layer { name: "loss"')].replace("value: 20", "value: 1")
    scores = f"""
layer {{ name: "rows" type: "Reshape" bottom: "mbox_conf" top: "rows" reshape_param {{ shape {{ dim: 0 dim: -1
         dim: {CLASSES} }} }} }}
layer {{ name: "soft" type: "Softmax" bottom: "rows" top: "soft" softmax_param {{ axis: 2 }} }}
layer {{ name: "scores" type: "Flatten" bottom: "soft" top: "scores" }}
"""
    ends = {"all": "nms_param { nms_threshold: 0.45 top_k: 400 } keep_top_k: 200 confidence_threshold: 0.06",
            "few": "nms_param { nms_threshold: 0.6 top_k: 50 eta: 0.9 }", "none": "confidence_threshold: 0.99"}
    check([export(tmp_path / name, f"""{text}{scores}layer {{ name: "found" type: "DetectionOutput" bottom: "mbox_loc"
        bottom: "scores" bottom: "mbox_priorbox" top: "found" detection_output_param {{ num_classes: {CLASSES}
        code_type: CENTER_SIZE {end} }} }}""") for name, end in ends.items()])


def test_every_layer_type(tmp_path):
    """The cases of ONNX's export, each a net of one layer."""
    check([export(tmp_path / f"{kind}{i}", prototxt(kind, options, shapes), values_of(kind, shapes))
           for i, (kind, (options, *shapes)) in enumerate(ALL)])


def test_layers_of_any_name_in_place_and_shared(tmp_path):
    """Names that Python or PyTorch has; a blob that is changed in place, and one with several readers."""
    text = """layer { name: "input" type: "Input" top: "lambda" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 4 } } }
layer { name: "forward" type: "Convolution" bottom: "lambda" top: "a-b" convolution_param { num_output: 3 kernel_size: 1
        weight_filler { type: "xavier" } } }
layer { name: "type" type: "Convolution" bottom: "a-b" top: "a/b" convolution_param { num_output: 3 kernel_size: 1
        weight_filler { type: "xavier" } } }
layer { name: "_modules" type: "PReLU" bottom: "a-b" top: "class" }
layer { name: "3" type: "Sigmoid" bottom: "a/b" top: "a/b" }
layer { name: "");import os" type: "InnerProduct" bottom: "a/b" top: "torch" inner_product_param { num_output: 2
        weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Eltwise" bottom: "class" bottom: "a-b" top: "F" }
""".replace('"");import', "'\");import").replace('os" type', "os' type")
    check([export(tmp_path / "names", text)])


def test_blobs_and_tensors_share_memory(tmp_path):
    (tmp_path / "net.prototxt").write_text(SMALL)
    done = subprocess.run([PYTHON, str(Path(__file__).with_name("share_blobs.py")), str(tmp_path / "net.prototxt")],
                          capture_output=True, text=True, timeout=300, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_module_trains(tmp_path):
    """Its parameters have gradients, and a second batch size is no matter."""
    folder = export(tmp_path / "net", deploy("lenet", 2))
    program = ("import net, torch; m = net.load().train(); m(torch.randn(5, 1, 28, 28)).log().mean().backward(); "
               "assert all(p.grad is not None for p in m.parameters())")
    done = subprocess.run([PYTHON, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
