"""What the report reads from logs and traces, which files it takes for one run, and what its page says."""

import json
import math
import re
from xml.etree import ElementTree

import pytest

from scaffe.cli import main as cli
from scaffe.errors import UserError
from scaffe.report import charts
from scaffe.report.find import find_runs
from scaffe.report.page import html
from scaffe.report.run import read_run
from scaffe.report.trace import LayerTime, read_trace
from tests.scaffe.report.files import write_log, write_trace

LOSSES = {0: 2.5, 10: 1.25, 20: math.nan, 30: 0.5}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def folder(tmp_path):
    write_log(tmp_path / "a.log", LOSSES, {0: 0.1, 20: 0.75})
    write_trace(tmp_path / "a.json")
    return tmp_path


def test_a_runs_figures_are_the_logs(folder):
    run = read_run("a", str(folder / "a.log"), str(folder / "a.json"))
    assert (run.n_ranks, run.images_per_iteration, run.n_iterations) == (2, 64, 40)
    assert (run.seconds, run.images_per_second, run.hidden) == (50.0, 51.0, (3.5, pytest.approx(0.571)))
    assert run.shares == {"forward": 0.5, "backward": 0.25, "data": 0.125}
    assert run.paces == [(i, 160.0) for i in LOSSES]  # 2.5 iterations of 64 images a second
    assert run.notes == {"Settings": "base_lr: 0.1 <script>", "Machine": "here, one & all"}
    assert run.outputs() == ["loss", "accuracy"]
    assert charts.points(run.train, "NumIters", "loss") == [(0, 2.5), (10, 1.25), (30, 0.5)], "nan cannot be drawn"
    assert charts.points(run.test, "Seconds", "accuracy") == [(1, 0.1), (3, 0.75)]


def test_a_traces_layers_and_window(folder):
    trace = read_trace(str(folder / "a.json"))
    assert trace.layers() == [LayerTime("ip", 2.0, 4.0, (3_000_000, 8_000_000))]
    assert (trace.layers()[0].forward_gflops, trace.layers()[0].backward_gflops) == (3.0, 4.0)  # 6 and 16 Mflop
    assert trace.window() == (30.0, 60.0), "iterations 3 to 5 of 0 to 8"
    write_trace(folder / "short.json", n_iterations=4)
    assert read_trace(str(folder / "short.json")).window() == (0.0, None)


@pytest.mark.parametrize(("files", "names"), [
    (["a.log", "a.json"], ["a"]), (["b.log", "a.json"], ["b"]), (["a.log", "b.log", "b.json"], ["a", "b"]),
    (["runs/x"], ["x"]), (["runs/x", "runs/y"], ["x", "y/1", "y/2"]),
    (["a.log", "runs/x", "other/x"], ["a", "x", "x'"]),
])
def test_which_files_are_one_run(folder, monkeypatch, files, names):
    monkeypatch.chdir(folder)
    write_log(folder / "b.log", LOSSES, {})
    write_trace(folder / "b.json")
    for path in ("runs/x", "runs/y", "other/x"):
        (folder / path).mkdir(parents=True)
    for path in ("runs/x/caffe.here.me.log.INFO.2026", "runs/y/1.log", "runs/y/2.log", "other/x/1.log"):
        write_log(folder / path, LOSSES, {})
    (folder / "runs/x/caffe.INFO").symlink_to("caffe.here.me.log.INFO.2026")
    (folder / "runs/x/notes.txt").write_text("not a log\n")
    write_trace(folder / "runs/x/trace.json")
    runs = find_runs(files)
    assert [run.name for run in runs] == names
    assert bool(runs[-1].trace) == any(file.endswith(("b.json", "a.json")) for file in files) or files == ["runs/x"]


@pytest.mark.parametrize(("content", "said"), [
    ("hello", "neither a log of train nor a trace"), ('{"traceEvents": [{"ph": "X"}]}', "not a trace"),
    ('{"traceEvents": [], "otherData": {"multiply_adds": {"ip": 3}}}', "not a trace"),
    ('{"traceEvents": [], "otherData": 5}', "not a trace"), ("{", "neither")])
def test_other_files_are_refused(tmp_path, content, said):
    (tmp_path / "x").write_text(content)
    with pytest.raises(UserError, match=said):
        find_runs([str(tmp_path / "x")])


def test_empty_folders_and_missing_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="has no log of train"):
        find_runs([str(tmp_path)])
    with pytest.raises(UserError, match="no such file"):
        find_runs([str(tmp_path / "none.log")])


def test_the_page_has_everything_and_escapes_it(folder):
    write_log(folder / "b.log", {0: 3.0, 10: 2.0}, {}, n_ranks=4)
    page = html(find_runs([str(folder / name) for name in ("a.log", "a.json", "b.log")]), "Two <runs>")
    assert "<title>Two &lt;runs&gt;</title>" in page
    assert "base_lr: 0.1 &lt;script&gt;" in page
    assert "<script" not in page
    assert "<b>" not in re.sub(r"<td><b style", "", page).replace("&lt;b&gt;", ""), "a layer's name became an element"
    assert not re.search(r"""(?:src|href)=|url\((?!#)|@import""", page), "needs something from elsewhere"
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads == ["Runs", "What was learnt", "Rate and pace", "Where the time went", "Some iterations, rank by rank",
                     "Layers", "Net", "Settings, versions, machine"]
    drawings = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]
    assert len(drawings) == 4 + 2 + 1 + 1  # loss and accuracy twice, rate, pace, timeline, net
    curves = [len(drawing.findall(f"{SVG}polyline[@fill='none']")) for drawing in drawings[:6]]
    assert curves == [2, 2, 1, 1, 2, 2]
    assert "57.1% of all communication hidden" in page
    assert '<td>2.000</td><td><b style="width:3.00em"></b>3.0</td>' in page


def test_a_log_that_breaks_off_says_how_far_it_came(folder):
    text = (folder / "a.log").read_text()
    (folder / "a.log").write_text(text[:text.index("Iteration 30") + 40])
    page = html([read_run("a", str(folder / "a.log"))], "")
    assert "<td>20 so far</td>" in page
    assert "Where the time went" not in page


def test_of_a_real_run(tmp_path, monkeypatch, capfd):
    """The log and the trace of train have what the report looks for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text("""name: "n"
        layer { name: "d" type: "DummyData" top: "x" top: "y" include { phase: TRAIN }
          dummy_data_param { shape { dim: 4 dim: 30 } shape { dim: 4 dim: 5 } data_filler { type: "gaussian" } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 5 } }
        layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2" inner_product_param { num_output: 5 } }
        layer { name: "l1" type: "EuclideanLoss" bottom: "ip2" bottom: "y" top: "l1" }
        layer { name: "l2" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "l2" }""")
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 9 '
                                              'display: 3 snapshot_prefix: "run" snapshot_after_train: false')
    assert cli.main(["train", "-solver", "solver.prototxt", "-timeline", "run.json"]) == 0
    (tmp_path / "run.log").write_text(capfd.readouterr().err)
    assert cli.main(["report", "run.log", "run.json", "-output", "out.html"]) == 0
    run, = find_runs(["run.log", "run.json"])
    assert (run.n_ranks, run.images_per_iteration, run.n_iterations) == (1, 4, 9)
    assert set(run.notes) == {"Settings", "Command", "Versions", "Machine"}
    assert 'base_lr: 0.01' in run.notes["Settings"]
    assert [row["NumIters"] for row in run.train] == [0, 3, 6]
    assert run.shares["forward"] > 0
    assert run.trace.multiply_adds == {"ip": (4 * 30 * 5, 4 * 30 * 5), "ip2": (4 * 5 * 5, 2 * 4 * 5 * 5)}
    assert {time.name for time in run.trace.layers()} >= {"d", "ip", "ip2", "l1"}
    assert "split" not in json.loads((tmp_path / "run.json").read_text())["otherData"]["net"]
    assert (tmp_path / "out.html").read_text().count("<svg") == 2 * 2 + 2 + 1 + 1
