"""The benchmarks' table and JSON, their iterations, and calls that take turns."""

from __future__ import annotations

import json
from argparse import Namespace

import numpy as np
import pytest

from scaffe.collectives.bench import measure, report
from scaffe.collectives.bench.options import iterations
from scaffe.collectives.communicator import Communicator

SECONDS = np.array([4e-6, 1e-6, 2e-6, 33e-6])


def test_a_line_has_the_median_in_microseconds():
    assert report.line(64, [SECONDS, 2 * SECONDS], full=False).split() == ["64", "3.00", "6.00"]
    full = report.line(64, [SECONDS], full=True, note=" Pass")
    assert full.split() == ["64", "3.00", "1.00", "10.00", "33.00", "Pass"]


def test_headings_stand_above_their_columns():
    top, names = report.heading("reduce", ["mpi", "auto"], full=True).splitlines()
    assert top == "# scaffe reduce"
    assert names.split() == ["#", "Size", "mpi", "min", "mean", "max", "auto", "min", "mean", "max"]
    assert len(names) == len(report.line(64, [SECONDS, SECONDS], full=True))


def test_rows_in_json(tmp_path):
    path = tmp_path / "rows.json"
    report.write_json(str(path), {"ranks": 2}, [report.row(64, "M", SECONDS)])
    assert json.loads(path.read_text()) == {"ranks": 2, "rows": [pytest.approx(
        {"bytes": 64, "algorithm": "M", "median_us": 3, "min_us": 1, "mean_us": 10, "max_us": 33, "iterations": 4})]}


@pytest.mark.parametrize(("n_bytes", "given", "expected"), [
    (8192, (None, None), (20, 200)), (8193, (None, None), (4, 100)), (4 << 20, (None, None), (4, 32)),
    (1 << 30, (None, None), (4, 8)), (4, (0, 3), (0, 3)), (4, (None, 0), (20, 1))])
def test_long_messages_get_fewer_iterations(n_bytes, given, expected):
    assert iterations(Namespace(warmup=given[0], iterations=given[1]), n_bytes) == expected


def test_calls_take_turns(monkeypatch):
    called = []
    calls = [lambda: called.append("a"), lambda: called.append("b")]
    rounds = measure.time_in_turns(Communicator.single(), calls, n_warm=1, n_timed=5, n_rounds=2)
    assert "".join(called) == 2 * (4 * "a" + 4 * "b")
    assert [times.shape for times in rounds] == [(2, 3), (2, 3)]
    assert all((times > 0).all() for times in rounds)


def test_the_fastest_rounds_median_counts():
    assert measure.undisturbed(np.array([[5.0, 9, 1], [3, 3, 8], [2, 7, 7]])) == 3


def test_auto_may_take_a_tenth_longer_than_the_best():
    tries = iter([[1.0, 1.11], [1.0, 1.1], [0.1, 0.1]])
    assert report.check(["M", "auto"], lambda: next(tries)) == (pytest.approx(1.1), "M")
    assert next(tries) == [0.1, 0.1]  # the second try was good enough
