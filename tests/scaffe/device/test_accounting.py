"""``summary -memory_of gpu`` and training count the same bytes, on a pretend device whose convolutions take what
cuDNN's planner reported for cards."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from scaffe.cli import main as cli
from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError
from scaffe.layers.kernels.cuda import cublas
from scaffe.layers.kernels.cuda.arena import arena
from scaffe.layers.kernels.cuda.cudnn import graphs as cudnn_graphs
from scaffe.layers.kernels.cuda.cudnn import plans as cudnn_plans
from scaffe.layers.kernels.cuda.cudnn.graphs import Built
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from tests import pretend
from tests.layers.cuda import benchmark_graphs
from tests.scaffe.memory.test_activation_arena import fed, layer, lenet, plain, prototxt, residual

pytestmark = pretend.needs_compiler
REFUSAL = r"this net trains in ([\d,]+) at least, of which ([\d,]+) cannot move"


@pytest.fixture(params=[True, False], ids=["cudnn", "ours"])
def with_cudnn(request: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> bool:
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cublas.precision, "tf32", False)  # which commands set
    pretend.install(monkeypatch, with_cudnn=request.param)
    for cached in (cudnn_graphs.frontend, cudnn_plans.build, cublas.cublas):
        cached.cache_clear()
    arena.forget()
    return request.param


def solver_of(net: str, **options: Any) -> Any:
    param = text_format.Parse('base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 4 random_seed: 5 '
                              'snapshot_prefix: "none" snapshot_after_train: false', caffe_pb2.SolverParameter())
    text_format.Parse(net, param.net_param)
    given = {"strategy": "auto", "reduce": "auto", "allow_nan": False, "threads": 1, "readers": 1, "stage": "",
             "level": 0, "scal": "strong", "spill": ".", "placement": "auto", "gpu": "0", "tf32": "on", **options}
    return build_solver(Communicator.single(), param, Namespace(**given))


def in_training(net: str) -> tuple[int, int]:
    """The least bytes, and those of them that cannot move."""
    with pytest.raises(UserError, match=REFUSAL) as raised:
        solver_of(net, memory="1KB")
    return numbers(str(raised.value))


def in_summary(net: str, folder: Path, capfd: Any) -> tuple[int, int]:
    (folder / "net.prototxt").write_text(net)
    capfd.readouterr()
    assert cli.main(["summary", str(folder / "net.prototxt"), "-memory_of", "gpu", "-memory", "1KB"]) == 1
    return numbers(capfd.readouterr().err)


def numbers(line: str) -> tuple[int, int]:
    found = re.search(REFUSAL, line)
    return tuple(int(found[i].replace(",", "")) for i in (1, 2))


def caffenet() -> str:
    """At 256 images, with short inner products."""
    return prototxt("caffenet", 256).replace("num_output: 4096", "num_output: 64").replace(
        'type: "Input"', 'type: "DummyData"').replace(
        "input_param {", 'dummy_data_param { data_filler { type: "gaussian" } data_filler { type: "constant" }')


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans' workspaces are those that cuDNN's planner reports for an H100 and an H200; each plan takes a hundredth
    longer than the one before, whatever it computes, and a micro-batch its part of the time."""
    told = json.loads((Path(benchmark_graphs.__file__).with_name("cudnn_workspaces.json")).read_text())
    rows = {key: told[name] for name, key in benchmark_graphs.with_micro_batches("caffenet").items()}
    geometry = {(key.kind, key.bias, key.slope, key.spec.in_shape, key.spec.n_output, key.spec.group): row
                for key, row in rows.items()}

    def timed(key: Any, found: Any, is_alone: bool) -> list[float]:
        return [key.spec.in_shape[0] * (1 + number / 100) for number in range(len(found))]

    def candidates(key: Any, n_halved: int, wanted: str | None = None) -> list[Any]:
        row = geometry.get((key.kind, key.bias, key.slope, key.spec.in_shape, key.spec.n_output, key.spec.group), ())
        return [cudnn_plans.Candidate(Built(None, number, n_bytes, key, 2**n_halved), str(number), b"")
                for number, n_bytes in enumerate(row)]
    monkeypatch.setattr(cudnn_plans, "_timed", timed)
    monkeypatch.setattr(cudnn_plans, "_candidates", candidates)
    monkeypatch.setattr(cudnn_plans, "seconds_of", lambda work: 1.0)


@pytest.mark.parametrize("with_cudnn", [True], indirect=True)
def test_caffenet_on_a_card(with_cudnn: bool, reported: None, tmp_path: Path, capfd: Any) -> None:
    """In micro-batches no convolution takes more than 64 MiB and its weights, of 2.7 MB at most."""
    assert in_training(caffenet()) == in_summary(caffenet(), tmp_path, capfd)
    assert 60_000_000 < arena.n_bytes < (64 << 20) + 2_700_000


def awkward() -> str:
    """Layers whose scratch memory others do not hide: one that does not learn, one without bias, sums of a Scale that
    runs by itself, a deconvolution, groups, BN of a fork."""
    some = 'weight_filler { type: "xavier" }'
    return fed("\n".join([
        f'layer {{ name: "g" type: "Convolution" bottom: "data" top: "g" param {{ lr_mult: 0 }} param {{ lr_mult: 0 }} '
        f'convolution_param {{ num_output: 24 kernel_size: 5 stride: 3 group: 3 {some} }} }}',
        layer("Scale", "g", "s", "scale_param { bias_term: true }"), layer("Sigmoid", "s", "q"),
        f'layer {{ name: "d" type: "Deconvolution" bottom: "q" top: "d" convolution_param {{ num_output: 10 '
        f'kernel_size: 3 stride: 2 {some} }} }}',
        layer("BN", "d", "b"), layer("LRN", "b", "n"),
        f'layer {{ name: "o" type: "Convolution" bottom: "n" top: "last" convolution_param {{ num_output: 7 '
        f'kernel_size: 1 bias_term: false {some} }} }}']))


NETS = {"lenet": lenet(), "residual": residual(), "plain": plain(), "awkward": awkward()}


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_training_takes_no_more_scratch_memory_than_was_counted(net: str, with_cudnn: bool) -> None:
    solver = solver_of(net)
    counted = arena.n_bytes
    assert counted
    solver.step(4)
    assert arena.n_bytes == counted


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_both_commands_count_the_same_bytes(net: str, with_cudnn: bool, tmp_path: Path, capfd: Any) -> None:
    assert in_training(net) == in_summary(net, tmp_path, capfd)
