"""Whole nets, forward and backward, with the blob and parameter shapes that BVLC Caffe itself gave them.

``tests/reference/caffe_shapes.json`` holds what Caffe 1.0 printed: net, phase → blobs' and parameters' shapes. The nets
of its own examples and models are not ours to carry: name a copy of Caffe's sources in SCAFFE_BVLC to run them all.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2
from scaffe.training.learning_rate import learning_rate
from scaffe.training.update_rules import update_rules
from tests.scaffe.bvlc import prepared_nets, solver_nets

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
from nets.prototxt import prototxt  # noqa: E402

SHAPES = json.loads((Path(__file__).parents[2] / "reference" / "caffe_shapes.json").read_text())
BVLC = os.environ.get("SCAFFE_BVLC")
OURS = [name for name in SHAPES if name.startswith("benchmarks/")]


def check(name: str, phase: int, message: object) -> None:
    net = build_net(message, Context(phase, cpu, rng=Stream(1)))
    blobs, params = SHAPES.get(name, {}).get(str(phase), (None, None))
    if blobs is not None:
        assert {key: list(blob.shape) for key, blob in net.blobs.items()} == blobs
        assert {n.name: [list(b.shape) for b in n.layer.blobs] for n in net.nodes if n.layer.blobs} == params
    net.forward()
    net.backward()
    net.close()


@pytest.mark.parametrize("name", OURS)
def test_our_nets_have_caffes_shapes(name):
    message = text_format.Parse(prototxt(name.removeprefix("benchmarks/"), 2), caffe_pb2.NetParameter())
    for phase in (0, 1):
        prepared = graph.prepare(message, phase)
        check(name, phase, prepared)


@pytest.mark.skipif(not BVLC, reason="SCAFFE_BVLC names no copy of BVLC Caffe's sources")
def test_every_net_of_caffes_repository(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(BVLC) / "examples/pycaffe/layers"))
    left = {(name, int(phase)) for name, phases in SHAPES.items() if name not in OURS for phase in phases}
    for name, phase, message in prepared_nets(Path(BVLC)):
        if any(layer.top and not layer.bottom for layer in message.layer):  # others have no data in this phase
            check(name, phase, message)
            left.discard((name, phase))
    assert not left


@pytest.mark.skipif(not BVLC, reason="SCAFFE_BVLC names no copy of BVLC Caffe's sources")
def test_every_solver_of_caffes_repository():
    solvers = list(solver_nets(Path(BVLC)))
    for solver, nets in solvers:
        assert learning_rate(solver, 0) > 0
        assert solver.type in update_rules.names()
        for phase, message in nets:
            check("a solver's own net", phase, message)
    assert len(solvers) > 20
    assert any(nets for _, nets in solvers)


def test_a_python_layers_module_may_import_caffe(tmp_path, monkeypatch):
    """Users' modules say ``import caffe``; they find this package, and the import system is left in order."""
    (tmp_path / "doubling.py").write_text(
        "import importlib\nimport caffe\nimportlib.invalidate_caches()\n"
        "class Double(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): top[0].reshape(*bottom[0].data.shape)\n"
        "    def forward(self, bottom, top): top[0].data[...] = 2 * bottom[0].data\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    message = text_format.Parse(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 3 } } } layer { name: "y" type: "Python" '
        'bottom: "x" top: "y" python_param { module: "doubling" layer: "Double" } }', caffe_pb2.NetParameter())
    net = build_net(message, Context(1, cpu, rng=Stream(1)))
    net.blobs["x"].data[...] = [1, 2, 3]
    net.forward()
    assert net.blobs["y"].data.tolist() == [2, 4, 6]
