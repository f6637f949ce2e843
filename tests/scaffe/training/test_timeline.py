"""The trace of a run, its summary and its picture."""

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from scaffe.cli.commands.logs import plot
from scaffe.errors import UserError
from scaffe.pictures.hidden import Hidden, hidden
from scaffe.pictures.timeline import COLOURS, LEFT, lay_out, to_png, to_svg, whole
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


def span(rank, thread, name, start, end):
    """A span of a trace, its times in milliseconds."""
    return {"ph": "X", "name": name, "pid": rank, "tid": thread, "ts": start * 1e3, "dur": (end - start) * 1e3}


def threads(rank):
    return [{"ph": "M", "name": "thread_name", "pid": rank, "tid": i, "args": {"name": name}}
            for i, name in enumerate(("main", "layers", "helper"))]


def texts(document):
    return [element.text for element in ET.fromstring(document).iter(f"{SVG}text")]


SVG = "{http://www.w3.org/2000/svg}"
TWO = [span(0, 0, "forward a", 0, 1), span(1, 2, "reduce a", 1, 4)]


def test_picture_is_to_scale():
    first, second = ET.fromstring(to_svg(lay_out(TWO, whole(TWO)))).findall(f"{SVG}rect[@class='bar']")
    assert float(second.get("width")) == pytest.approx(3 * float(first.get("width")), rel=1e-3)
    assert float(second.get("x")) == pytest.approx(float(first.get("x")) + float(first.get("width")), abs=0.02)
    with pytest.raises(UserError, match="no spans"):
        lay_out(TWO, whole(TWO, 5.0, 6.0))


def test_png_shows_the_same_bars(tmp_path):
    """It is drawn from the very SVG, twice as large; a pixel at an edge may be mixed with what is beside it."""
    cv2 = pytest.importorskip("cv2")
    pytest.importorskip("resvg_py")
    picture = lay_out(TWO, whole(TWO))
    pixels = cv2.imdecode(np.frombuffer(to_png(picture), np.uint8), cv2.IMREAD_COLOR)
    assert pixels.shape == (2 * picture.height, 2 * picture.width, 3)
    for bar, name in zip(picture.bars, ("forward", "reduce")):
        colour = list(bytes.fromhex(COLOURS[name][1:]))[::-1]
        area = pixels[int(2 * bar.y):, :]
        painted = np.argwhere((area == colour).all(axis=2))
        (top, left), (bottom, right) = painted.min(axis=0) / 2, (painted.max(axis=0) + 1) / 2
        assert (left, right) == (pytest.approx(bar.x, abs=1), pytest.approx(bar.x + bar.width, abs=1))
        assert (top, bottom) == (pytest.approx(0, abs=1), pytest.approx(bar.height, abs=1))
    assert (pixels[:, :int(2 * LEFT) - 10] < 128).any(), "the threads' names"
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": TWO}))
    assert plot([str(tmp_path / "t.json"), str(tmp_path / "t.png")]) == 0
    assert (tmp_path / "t.png").read_bytes() == to_png(picture)
    with pytest.raises(UserError, match=r"expected \.svg or \.png"):
        plot([str(tmp_path / "t.json"), "-output", "t.gif"])


def ten_iterations(folder, first=0):
    """Iterations of 10 ms of two ranks but for the first, of 90, and the sixth, of 30."""
    events, start = threads(0) + threads(1), 0
    for i in range(10):
        end = start + {0: 90, 5: 30}.get(i, 10)
        for rank in (0, 1):
            events += [span(rank, 0, "forward", start, start + 3), span(rank, 0, "backward", start + 3, start + 6),
                       span(rank, 0, "wait reduce ip", start + 6, start + 8), span(rank, 0, "update", end - 1, end),
                       span(rank, 1, "backward ip", start + 3, start + 6),
                       span(rank, 2, "reduce ip", start + 4, start + 8)]
        start = end
    path = folder / "t.json"
    path.write_text(json.dumps({"traceEvents": events, "otherData": {"first_iteration": first}}))
    return str(path)


def test_three_typical_iterations_with_a_legend_and_the_hidden_share_in_words(tmp_path):
    trace = ten_iterations(tmp_path)
    assert plot([trace]) == 0
    said = texts((tmp_path / "t.svg").read_bytes())
    assert "Iterations 2 to 4 of 10: 30.0 ms" in said, "no warm-up, no slow one"
    assert {"iteration 2", "iteration 3", "iteration 4", "rank 0", "rank 1", "main", "layers", "helper"} <= set(said)
    assert {"forward", "backward", "update", "reduce", "wait for communication"} <= set(said)
    assert said.count("50% of 12.0 ms communication hidden behind computing, 6.0 ms waited for") == 2
    assert "backward ip" in said
    assert "reduce ip" in said


@pytest.mark.parametrize(("asked", "title"), [("43:45", "Iterations 43 to 44 of 10: 20.0 ms"),
                                              ("45", "Iteration 45 of 10: 30.0 ms"),
                                              (":", "Iterations 40 to 49 of 10: 200.0 ms"),
                                              ("48:", "Iterations 48 to 49 of 10: 20.0 ms")])
def test_other_iterations_by_their_numbers(tmp_path, asked, title):
    assert plot([ten_iterations(tmp_path, 40), str(tmp_path / "o.svg"), "-iterations", asked]) == 0
    assert title in texts((tmp_path / "o.svg").read_bytes())


@pytest.mark.parametrize(("more", "said"), [
    (("-iterations", "50"), "t.json: -iterations: the trace has 40 to 49, got 50"),
    (("-iterations", "44:44"), "t.json: -iterations: the trace has 40 to 49, got 44:44"),
    (("-iterations", "all"), r"t.json: -iterations: expected A:B .* got 'all'")])
def test_iterations_that_are_not_there(tmp_path, more, said):
    with pytest.raises(UserError, match=said):
        plot([ten_iterations(tmp_path, 40), *more])


def test_names_stand_where_nothing_covers_them():
    """A short wait at the end of a long forward leaves the middle of the rest for its name."""
    events = [*threads(0), span(0, 0, "wait b", 90, 100), span(0, 0, "forward", 0, 100)]
    forward, wait = lay_out(events, whole(events)).bars
    assert (forward.name, wait.name) == ("forward", "wait b")
    assert forward.name_x == pytest.approx(forward.x + 0.45 * forward.width, abs=0.1)
    assert wait.x == pytest.approx(forward.x + 0.9 * forward.width, abs=0.1)


def test_what_is_hidden():
    """Communication from 2 to 8 and 9 to 10; the main thread waits from 5 to 6 and reduces itself from 9 to 10."""
    main = [("forward", (0, 9)), ("wait", (5, 6)), ("reduce", (9, 10))]
    assert hidden(main, [(2, 4), (3, 8)], (0, 10)) == Hidden(7, 5)
    assert hidden(main, [(2, 4), (3, 8)], (0, 5)) == Hidden(3, 3)
    assert str(hidden(main, [], (0, 5))) == "no communication"


def test_hidden_share():
    timers = Timers()
    timers.seconds["communication"] = 3.0  # 1 s of it blocking, 2 s waiting for the helper thread
    timers.carried("reduce a", 10.0, 16.0, 2.0)
    assert timers.hidden() == (7.0, pytest.approx(4 / 7))
    assert Timers().hidden() == (0, 0)


def test_a_picture_of_no_time_or_of_too_many_rows_is_refused(tmp_path):
    """Equal ends divided by 0; 30,000 threads took 2.5 GB as PNG."""
    spans = [span(0, tid, "update", 0, 1) for tid in range(1500)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": spans}))
    with pytest.raises(UserError, match=r"t.json: the trace has no spans between 0.5 and 0.5 ms"):
        plot([str(path), "-start", "0.5", "-end", "0.5"])
    with pytest.raises(UserError, match=r"1220 x 331\d\d pixels; draw an .svg"):
        plot([str(path), "-output", str(tmp_path / "t.png")])
    assert plot([str(path)]) == 0
