"""What an iteration of the benchmark's nets asks of a device: launches, bytes and graphs, counted and held.

Counted on the pretend device, whose cuDNN has one plan a graph: with fused convolutions there are fewer launches.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TRAIN, Layer
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda.cublas import precision
from scaffe.layers.kernels.cuda.cudnn import graphs as cudnn_graphs
from scaffe.layers.kernels.cuda.cudnn import plans as cudnn_plans
from scaffe.memory.problem.activations import reuse_activations
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.cuda_graphs import can_record, stretches
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text
from tests import pretend
from tests.pretend import tally

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from nets.prototxt import prototxt  # noqa: E402

BATCH = 256
HELD = {  # (net, dtype): launches of a forward and a backward, GB that they read and write at batch 256, CUDA graphs
    ("lenet", "float32"): (35, 0.14, 2),
    ("cifar10_quick", "float32"): (47, 0.46, 2),
    ("caffenet", "float32"): (87, 8.46, 2),
    ("googlenet", "float32"): (629, 63.11, 2),
    ("resnet50", "float32"): (341, 137.99, 2),
    ("resnet50", "bfloat16"): (292, 61.97, 2),
    ("resnet50", "float16"): (292, 61.97, 2),
}


def counted(name, dtype, batch):
    """The tally of one iteration, and how many recordings it has."""
    with tally.counting() as found:
        message = graph.prepare(parse_text(prototxt(name, batch), caffe_pb2.NetParameter), TRAIN)
        net = build_net(message, Context(TRAIN, cuda, dtype, Stream(1)))
        reuse_activations(net, backward=True)
        if net.context.dtype != net.params.dtype:
            net.params.copy_for_kernels(cuda, net.context.dtype)
        net.forward()
        net.backward()
        net.params.trust_copies(True)  # as an update leaves them
        found.clear()
        net.clear_param_diffs()
        net.forward()
        net.backward()
        net.params.write_all_cleared_diffs()
    return found, 2 * sum(can for _, _, can in stretches([can_record(node.layer) for node in net.nodes], ()))


@pytest.fixture
def with_cudnn(monkeypatch, tmp_path):
    """The pretend device with cuDNN, which knows no plans yet."""
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path))
    monkeypatch.setattr(precision, "tf32", False)  # whatever commands have set before
    pretend.install(monkeypatch, with_cudnn=True)
    caches = (cudnn_graphs.frontend, cudnn_plans.build)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pretend.needs_compiler
@pytest.mark.parametrize(("name", "dtype"), HELD)
def test_an_iteration_launches_and_moves_what_it_did(monkeypatch, with_cudnn, name, dtype):
    monkeypatch.setattr(Layer, "fill", lambda *given: None)  # parameters' values do not matter
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    (small, n_graphs), (twice, _) = (counted(name, np.dtype(dtype), batch) for batch in (2, 4))
    an_image = (twice.total_bytes - small.total_bytes) / 2
    total = small.total_bytes + (BATCH - 2) * an_image
    launches, gigabytes, graphs = HELD[name, np.dtype(dtype).name]
    assert small.n_launches == twice.n_launches
    assert (small.n_launches, round(total / 1e9, 2), n_graphs) == (launches, gigabytes, graphs), small.launches
