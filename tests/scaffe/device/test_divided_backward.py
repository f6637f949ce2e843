"""Training within limited memory of a device where backward of a convolution takes two steps: the bits of training
without a limit, within it."""

import pytest

from scaffe.memory.problem import division
from tests.pretend import memory
from tests.scaffe.device import test_limited_memory as plain
from tests.scaffe.device.test_limited_memory import as_in_a_new_process, limited, limits, on_device, solver_of, trained

pytestmark = plain.pytestmark
__all__ = ["on_device"]
FILLED = 'weight_filler { type: "xavier" }'


def convolution(bottom, top):
    return f"""layer {{ name: "{top}" type: "Convolution" bottom: "{bottom}" top: "{top}"
      convolution_param {{ num_output: 16 kernel_size: 3 pad: 1 {FILLED} }} }}
    layer {{ name: "r{top}" type: "ReLU" bottom: "{top}" top: "{top}" }}"""


NET = f"""layer {{ name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {{
  shape {{ dim: 4 dim: 3 dim: 32 dim: 32 }} shape {{ dim: 4 }}
  data_filler {{ type: "gaussian" std: 1 }} data_filler {{ type: "constant" value: 2 }} }} }}
{convolution("x", "c1")}
{convolution("c1", "c2")}
layer {{ name: "p" type: "Pooling" bottom: "c2" top: "p" pooling_param {{ kernel_size: 2 stride: 2 }} }}
{convolution("p", "c3")}
layer {{ name: "ip" type: "InnerProduct" bottom: "c3" top: "ip" inner_product_param {{ num_output: 5 {FILLED} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}"""


def divided(solver):
    return {solver.net.nodes[layer].name for layer in solver.net.steps.divided}


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("placement", ["auto", pytest.param("move", marks=pytest.mark.thorough)])
def test_the_bits_are_those_without_a_limit(tmp_path, precision, placement):
    options = {"net": NET, "precision": precision}
    expected = trained(solver_of(tmp_path, **options))
    for limit in limits(tmp_path, **options)[:3]:
        solver = solver_of(tmp_path, memory=limit, placement=placement, **options)
        assert divided(solver) == {"c2"}
        assert trained(solver) == expected


@pytest.mark.skipif(plain.REAL, reason="the pretend CuPy counts")
def test_a_third_less_is_enough(tmp_path, monkeypatch):
    """Than where all three arrays of the second convolution's backward are there at once; the pool keeps within it."""
    least = limited(solver_of(tmp_path, net=NET, memory="99%")).least
    with monkeypatch.context() as patch:
        patch.setattr(division, "divide_backward", lambda net, layers: None)
        undivided = limited(solver_of(tmp_path, net=NET, memory="99%")).least
    a_blob = 4 * 16 * 32 * 32 * 4
    assert undivided - least == pytest.approx(a_blob * (1 - 1 / 32), rel=0.02)
    as_in_a_new_process()
    before = memory.counters.peak = memory.counters.used
    solver = solver_of(tmp_path, net=NET, memory=str(least))
    solver.strategy.begin()
    solver.step(4)
    assert memory.counters.peak - before <= least
    solver.strategy.finish()
    solver.close()
