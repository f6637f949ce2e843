"""The trace of a run, its summary and its picture."""

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from scaffe.cli.commands.logs import plot
from scaffe.errors import UserError
from scaffe.pictures.timeline import COLOURS, LEFT, lay_out, to_png, to_svg
from scaffe.training.timers import Timers
from tests.scaffe.runs import run, write_solver

NET = """name: "small"
layer { name: "in" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" std: 1 } data_filler { type: "constant" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 5 } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""


@pytest.mark.mpi_job
@pytest.mark.parametrize("strategy, more, kinds", [
    ("sc-obr", ("-wire", "bf16", "-reduce", "C"), {"broadcast", "reduce"}), ("sc-rs", (), {"gather", "reduce"})])
def test_trace_of_two_ranks(tmp_path, strategy, more, kinds):
    solver = write_solver(tmp_path, NET, max_iter=5, test_iter=None, test_interval=None)
    done = run(tmp_path, "train", "-solver", str(solver), "-strategy", strategy, "-bucket", "0", "-timeline",
               "trace.json", *more, n_ranks=2)
    assert done.returncode == 0, done.stderr
    share = re.search(r"Communication: \d+\.\d+ s, (\d+\.\d)% of it hidden", done.stderr)
    assert share and 0 <= float(share[1]) <= 100
    spans = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    for rank in (0, 1):
        names = [e["name"] for e in spans if e["pid"] == rank]
        for layer in ("backward ip1", "backward ip2", "backward"):
            assert names.count(layer) == 5
        for layer in ("forward ip1", "forward ip2", "data in"):
            assert names.count(layer) == 6  # the display's last loss is a forward of its own
        for kind in kinds:
            assert {f"{kind} ip1", f"{kind} ip2"} <= set(names)
    assert all(e["dur"] >= 0 for e in spans)
    assert plot([str(tmp_path / "trace.json")]) == 0
    picture = ET.parse(tmp_path / "trace.svg")
    assert any("backward ip2" in (t.text or "") for t in picture.iter("{http://www.w3.org/2000/svg}title"))


def test_picture_is_to_scale():
    events = [{"ph": "X", "name": "forward a", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1000.0},
              {"ph": "X", "name": "reduce a", "pid": 0, "tid": 2, "ts": 1000.0, "dur": 3000.0}]
    first, second = list(ET.fromstring(to_svg(lay_out(events))).iter("{http://www.w3.org/2000/svg}rect"))[1:]
    assert float(second.get("width")) == pytest.approx(3 * float(first.get("width")), rel=1e-3)
    assert float(second.get("x")) == pytest.approx(float(first.get("x")) + float(first.get("width")), abs=0.02)
    with pytest.raises(UserError, match="no spans"):
        lay_out(events, 5.0, 6.0)


def test_png_shows_the_same_bars(tmp_path):
    cv2 = pytest.importorskip("cv2")
    events = [{"ph": "X", "name": "forward a", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1000.0},
              {"ph": "X", "name": "reduce a", "pid": 1, "tid": 2, "ts": 1000.0, "dur": 3000.0}]
    picture = lay_out(events)
    pixels = cv2.imdecode(np.frombuffer(to_png(picture), np.uint8), cv2.IMREAD_COLOR)
    assert pixels.shape == (picture.height, picture.width, 3)
    for bar, name in zip(picture.bars, ("forward", "reduce")):
        colour = list(bytes.fromhex(COLOURS[name][1:]))[::-1]
        painted = np.argwhere((pixels == colour).all(axis=2))
        (top, left), (bottom, right) = painted.min(axis=0), painted.max(axis=0)
        assert (left, top) == (pytest.approx(bar.x, abs=1), bar.y)
        assert (right + 1, bottom + 1) == (pytest.approx(bar.x + bar.width, abs=1), bar.y + bar.height)
    assert (pixels[:, :LEFT - 10] < 128).any()
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    assert plot([str(tmp_path / "t.json"), "-output", str(tmp_path / "t.png")]) == 0
    assert (tmp_path / "t.png").read_bytes() == to_png(picture)
    with pytest.raises(UserError, match=r"expected \.svg or \.png"):
        plot([str(tmp_path / "t.json"), "-output", "t.gif"])


def test_hidden_share():
    timers = Timers()
    timers.seconds["communication"] = 3.0  # 1 s of it blocking, 2 s waiting for the helper thread
    timers.carried("reduce a", 10.0, 16.0, 2.0)
    assert timers.hidden() == (7.0, pytest.approx(4 / 7))
    assert Timers().hidden() == (0, 0)


def test_a_picture_of_no_time_or_of_too_many_rows_is_refused(tmp_path):
    """Equal ends divided by 0; 30,000 threads took 2.5 GB as PNG."""
    spans = [{"ph": "X", "name": "update", "pid": 0, "tid": tid, "ts": 0.0, "dur": 1000.0} for tid in range(1500)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": spans}))
    with pytest.raises(UserError, match=r"t.json: the trace has no spans between 0.5 and 0.5 ms"):
        plot([str(path), "-start", "0.5", "-end", "0.5"])
    with pytest.raises(UserError, match=r"1200 x 33040 pixels; draw an .svg"):
        plot([str(path), "-output", str(tmp_path / "t.png")])
    assert plot([str(path)]) == 0
