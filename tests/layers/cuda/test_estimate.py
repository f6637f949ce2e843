"""Workspaces that are estimated without a card, beside those that cuDNN's planner reports for one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scaffe.layers.kernels.cuda.cudnn.convolution import BY_DATA, BY_WEIGHTS, FORWARD, ConvKey
from scaffe.layers.kernels.cuda.cudnn.estimate import SUMS_BYTES, scratch, workspace_bytes
from scaffe.layers.kernels.specs import ConvPasses, ConvSpec
from tests.layers.cuda import benchmark_graphs

REPORTED = json.loads(Path(__file__).with_name("cudnn_workspaces.json").read_text())


@pytest.mark.parametrize("name", [name for name in REPORTED if "fused" not in name and name.endswith(" 256")])
def test_caffenets(name: str) -> None:
    """From nine tenths of the least that plans report to 1.4 times the most: which is taken is not known."""
    found = workspace_bytes(benchmark_graphs.with_micro_batches("caffenet")[name])
    assert found <= 1.4 * max(REPORTED[name]) + SUMS_BYTES
    assert found >= 0.9 * min(REPORTED[name])


def spec_of(n_images: int, n_inputs: int, n_outputs: int, group: int = 1) -> ConvSpec:
    return ConvSpec((n_images, n_inputs, 10, 10), n_outputs, (3, 3), (1, 1), (1, 1), (1, 1), group)


@pytest.mark.parametrize(("kind", "spec", "tf32", "n_elems"), [
    (FORWARD, spec_of(2, 3, 8), True, 2 * 4 * 100 + 8 * 4 * 9),  # channels padded to 16 bytes
    (BY_WEIGHTS, spec_of(2, 3, 8), True, 2 * 4 * 100 + 8 * 4 * 9 + 2 * 8 * 100),
    (BY_DATA, spec_of(2, 8, 8, 2), True, 2 * 8 * 100 + 8 * 4 * 9 + 2 * 8 * 100),
    (FORWARD, spec_of(2, 8, 8), False, 2 * 8 * 100 + 8 * 8 * 9 + 2 * 8 * 100)])
def test_copies(kind: str, spec: ConvSpec, tf32: bool, n_elems: int) -> None:
    assert workspace_bytes(ConvKey(kind, spec, tf32)) == 4 * n_elems


def test_a_batch_is_halved_until_its_workspace_is_small() -> None:
    spec = spec_of(65536, 3, 8)  # 105 MB of images, as much again on the other side: 315 MB
    (weights, (n_bytes, dtype)), = scratch(spec, ConvPasses(False, by_weights=True))
    assert weights == ((8, 3, 3, 3), np.dtype(np.float32)) and dtype == "u1"
    assert n_bytes == 4 * (65536 // 8 * 12 * 100 + 8 * 4 * 9)
