"""Which device a rank computes on, and what is said where there is none."""

import re

import pytest

from scaffe.errors import UserError
from scaffe.layers.kernels import cpu
from scaffe.nets import devices
from scaffe.nets.devices import Compute, load_kernels, number_for
from tests import pretend


@pytest.mark.parametrize(("gpus", "node_rank", "number"), [
    ("0", 0, 0), ("0", 3, 0), ("2,0", 0, 2), ("2,0", 1, 0), ("2,0", 2, 2), ("all", 0, 0), ("all", 5, 1)])
def test_ranks_of_a_node_take_gpus_in_turn(gpus, node_rank, number):
    assert number_for(gpus, node_rank, 4 if gpus != "all" else 2) == number


@pytest.mark.parametrize("gpus", ["one", "0,", "-1", "0;1"])
def test_a_list_that_is_none(gpus):
    with pytest.raises(UserError, match="takes numbers with commas between, or all"):
        number_for(gpus, 0, 4)


def test_the_cpu_where_nobody_asks():
    assert load_kernels(1) is cpu


def test_no_gpu_is_one_line(monkeypatch):
    pretend.install(monkeypatch, n_devices=0)
    with pytest.raises(UserError, match=r"^-gpu 0: .*CUDA finds no device"):
        load_kernels(1, Compute(gpus="0"))
    said = []
    monkeypatch.setattr(devices, "warning", said.append)
    assert load_kernels(1, Compute(wants_gpu=True)) is cpu
    assert len(said) == 1
    assert said[0].startswith("solver_mode GPU: ")
    assert said[0].endswith("; running on the CPU")


def test_fp16_needs_a_gpu():
    with pytest.raises(UserError, match="-precision fp16 is for GPUs"):
        load_kernels(1, Compute(precision="fp16"))


@pytest.mark.parametrize(("has_instructions", "n_lines"), [(True, 0), (False, 1)])
def test_bf16_says_what_it_costs_where_the_processor_lacks_it(monkeypatch, has_instructions, n_lines):
    said = []
    monkeypatch.setattr(devices, "warning", said.append)
    monkeypatch.setattr("scaffe.layers.kernels.cpu.bfloat16_cost.has_instructions", lambda: has_instructions)
    assert load_kernels(1, Compute(precision="bf16")) is cpu
    assert len(said) == n_lines
    assert all(re.fullmatch(r"-precision bf16: this processor has no instructions for it; a convolution takes "
                            r"[\d.]+ times as long as in fp32", line) for line in said)


def test_a_gpu_that_is_not_there(monkeypatch):
    pretend.install(monkeypatch, n_devices=1)
    with pytest.raises(UserError, match="there is no GPU 3: CUDA finds 1"):
        load_kernels(1, Compute(gpus="3"))
    assert load_kernels(1, Compute(wants_gpu=True)).__name__ == "scaffe.layers.kernels.cuda"
