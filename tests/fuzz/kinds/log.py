"""Solvers' logs, and the traces of ``train -timeline``."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

from scaffe.cli.commands.logs import parse_log, plot, report, scaling
from scaffe.errors import UserError
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.kinds.tuning_table import as_json
from tests.fuzz.kinds.windows import number
from tests.fuzz.mutators.messages import spoil
from tests.scaffe.report.files import write_log, write_trace

LOG = """I1122 10:00:00.000000  1 solver.cpp:60] Solving LeNet
I1122 10:00:01.500000  1 solver.cpp:60] Iteration 0, loss = 2.3
I1122 10:00:01.600000  1 solver.cpp:60]     Train net output #0: loss = 2.3 (* 1 = 2.3 loss)
I1122 10:00:01.700000  1 sgd_solver.cpp:60] Iteration 0, lr = 0.01
I1122 10:00:03.500000  1 solver.cpp:60] Iteration 100, Testing net (#0)
I1122 10:00:04.500000  1 solver.cpp:60]     Test net output #0: accuracy = 0.9
I1122 10:00:05.500000  1 solver.cpp:60] Iteration 100, lr = 0.01
"""
VALUE = re.compile(rb'"[^"\n]*"(?!:)|[-+.\w]+')
OTHERS = [b"1e308", b"-1e308", b"5e-324", b"NaN", b"Infinity", b"9" * 400, b"9" * 5000, b"0", b"-1", b"true", b"null",
          b"[]", b"{}", b'"\\u0000\\u001b"', b'"\\u202e"', b'"\\ud800"', b'"\\uffff"', b'"' + b"x" * 5000 + b'"',
          b"\x00\x1b[31m", b"\xe2\x80\xae", b"\xff\xfe", b"<b>&", b'"<script>"', b'"thread_name"',
          b'"layers"', b'"update"']
EVENTS = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
          {"ph": "X", "name": "forward", "cat": "compute", "pid": 0, "tid": 0, "ts": 1.0, "dur": 5.0, "args": {}},
          {"ph": "X", "name": "reduce", "cat": "communication", "pid": 0, "tid": 1, "ts": 3.0, "dur": 4.0, "args": {}}]


def seeds(folder: Path) -> list[Files]:
    """One of each, small and like a real run's."""
    write_log(folder / "log", {0: 2.5, 10: 1.25, 20: 0.5, 30: 0.25}, {0: 0.1, 20: 0.75})
    write_trace(folder / "trace.json", n_iterations=5)
    return [{"log": LOG.encode()}, {"log": (folder / "log").read_bytes()},
            {"trace.json": json.dumps({"traceEvents": EVENTS}).encode()},
            {"trace.json": (folder / "trace.json").read_bytes()}]


def value(rng: random.Random, content: bytes) -> bytes:
    """One value of JSON, or one word of a log, is another: huge, equal, of another kind, or of strange characters."""
    places = list(VALUE.finditer(content))
    if not places:
        return content
    place = rng.choice(places)
    other = rng.choice([place, rng.choice(places)])[0] if rng.randrange(3) == 0 else rng.choice(OTHERS)
    return content[:place.start()] + other + content[place.end():]


def read(folder: Path) -> None:
    """parse_log, scaling, plot and report. Raises ValueError where a page or picture has what XML has no place for."""
    with contextlib.redirect_stdout(io.StringIO()):
        _run(folder)
    for path in folder.glob("*.svg"):
        ElementTree.fromstring(path.read_bytes())
    page = (folder / "report.html").read_text()
    if strange := [c for c in page if (unicodedata.category(c) in ("Cc", "Cs") and c != "\n") or c == "\u202e"]:
        raise ValueError(f"the page has {strange[:5]}")
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)


def _run(folder: Path) -> None:
    if (folder / "log").exists():
        parse_log([str(folder / "log"), str(folder)])
        with contextlib.suppress(UserError):  # a run that is not at its end, for one
            scaling(["-strong", str(folder / "log"), "-plot", str(folder / "scaling.svg")])
    else:
        plot([str(folder / "trace.json")])
        plot([str(folder / "trace.json"), "-output", str(folder / "trace.png"), "-start", "0.001"])
    report([str(folder), "-output", str(folder / "report.html")])


KIND = Kind(seeds, read, one_file(number, spoil, as_json, value))
