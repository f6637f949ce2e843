"""GFLOP/s of layers, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.layers.kernels import cpu
from scaffe.nets import summary
from scaffe.nets.summary import measured_peak, speed_lines
from tests.scaffe.nets.test_inference import INPUT, build, conv, relu


def test_lines_count_two_operations_a_multiply_add() -> None:
    net = build(INPUT + conv("c", "x", 6) + relu("c"))
    n = 2 * 6 * 4 * 9 * 3 * 7 * 5  # outputs, inputs, taps, images, rows, columns
    index = next(i for i, node in enumerate(net.nodes) if node.name == "c")
    seconds = dict.fromkeys(range(len(net.nodes)), 2e-06)
    lines = speed_lines(net, seconds, {}, n / 1e9 / 1e-6)
    assert lines == [f"         c\tforward: {n / 2e3:.1f} GFLOP/s, 50% of the peak."]
    assert speed_lines(net, {index: 0.0}, {}, 1.0) == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_peak_is_of_the_fastest_try(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0, 3, 10, 11, 20, 22, 30, 34, 40, 45])
    monkeypatch.setitem(summary.N_IMAGES, "host", 1)
    monkeypatch.setattr(summary, "WIDTH", 10)
    monkeypatch.setattr(summary.time, "perf_counter", lambda: next(times))
    assert measured_peak(cpu, np.dtype(dtype)) == pytest.approx(2 * 10 * 10 * 9 * 28 * 28 / 1e9)
