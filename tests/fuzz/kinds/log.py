"""Solvers' logs, and the traces of ``train -timeline``."""

from __future__ import annotations

import json
from pathlib import Path

from scaffe.cli.commands import plot, report
from scaffe.report.caffe_log import parse_log
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.kinds.tuning_table import as_json
from tests.fuzz.kinds.windows import number
from tests.fuzz.mutators.messages import spoil

LOG = """I1122 10:00:00.000000  1 solver.cpp:60] Solving LeNet
I1122 10:00:01.500000  1 solver.cpp:60] Iteration 0, loss = 2.3
I1122 10:00:01.600000  1 solver.cpp:60]     Train net output #0: loss = 2.3 (* 1 = 2.3 loss)
I1122 10:00:01.700000  1 sgd_solver.cpp:60] Iteration 0, lr = 0.01
I1122 10:00:03.500000  1 solver.cpp:60] Iteration 100, Testing net (#0)
I1122 10:00:04.500000  1 solver.cpp:60]     Test net output #0: accuracy = 0.9
I1122 10:00:05.500000  1 solver.cpp:60] Iteration 100, lr = 0.01
"""
EVENTS = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
          {"ph": "X", "name": "forward", "cat": "compute", "pid": 0, "tid": 0, "ts": 1.0, "dur": 5.0, "args": {}},
          {"ph": "X", "name": "reduce", "cat": "communication", "pid": 0, "tid": 1, "ts": 3.0, "dur": 4.0, "args": {}}]


def seeds(folder: Path) -> list[Files]:
    """One of each."""
    return [{"log": LOG.encode()}, {"trace.json": json.dumps({"traceEvents": EVENTS}).encode()}]


def read(folder: Path) -> None:
    """parse_log, plot and report."""
    if (folder / "log").exists():
        parse_log(str(folder / "log"))
    else:
        plot.main([str(folder / "trace.json")])
    report.main([str(folder), "-output", str(folder / "report.html")])


KIND = Kind(seeds, read, one_file(number, spoil, as_json))
