"""What the report reads from logs and traces, which files it takes for one run, and what its page says."""

import json
import math
import re
from xml.etree import ElementTree

import pytest

from scaffe.cli import main as cli
from scaffe.errors import UserError
from scaffe.report import charts
from scaffe.report.page import html
from scaffe.report.run import find_runs, outputs_of, read_run
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
    assert run.throughputs == [(i, 160.0) for i in LOSSES]  # 2.5 iterations of 64 images a second
    assert run.notes == {"Settings": "base_lr: 0.1 <script>", "Machine": "here, one & all"}
    assert outputs_of([run]) == (["loss", "accuracy"], 0)
    assert charts.points(run.train, "NumIters", "loss") == [(0, 2.5), (10, 1.25), (30, 0.5)], "nan cannot be drawn"
    assert charts.points(run.test, "Seconds", "accuracy") == [(1, 0.1), (3, 0.75)]


def test_a_traces_layers_and_window(folder):
    trace = read_trace(str(folder / "a.json"))
    assert trace.layers() == [LayerTime("ip", 2.0, 4.0, (3_000_000, 8_000_000))]
    assert (trace.layers()[0].forward_gflops, trace.layers()[0].backward_gflops) == (3.0, 4.0)  # 6 and 16 Mflop
    window = trace.typical()
    assert (window.start, window.end) == (30.0, 60.0), "iterations 3 to 5 of 0 to 8"
    assert window.iterations == (("iteration 3", 40.0), ("iteration 4", 50.0), ("iteration 5", 60.0))
    write_trace(folder / "short.json", n_iterations=4)
    short = read_trace(str(folder / "short.json"))
    assert (short.typical().start, short.typical().end) == (0.0, 10.0 * len(short.ends()))


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
    ('{"traceEvents": [], "otherData": 5}', "not a trace"), ("{", "neither"),
    *((f'{{"traceEvents": [{{"ph": "X", "name": "update", "pid": 0, "tid": 0, "ts": 1, "dur": 1, {wrong}}}]}}',
       "not a trace") for wrong in (
        '"ts": 1e308', '"dur": 1e999', '"ts": NaN', '"ts": ' + "9" * 400, '"dur": -1', '"ts": true', '"pid": [0]',
        '"tid": {}', '"tid": 1.5', '"pid": ' + "9" * 99, '"name": ["update"]', '"name": null')),
    ('{"traceEvents": [{"name": "thread_name", "pid": 0, "tid": [1], "args": {"name": "x"}}]}', "not a trace"),
    ('{"traceEvents": [], "otherData": {"multiply_adds": {"ip": [1, -1]}}}', "not a trace")])
def test_other_files_are_refused(tmp_path, content, said):
    (tmp_path / "x").write_text(content)
    with pytest.raises(UserError, match=said):
        find_runs([str(tmp_path / "x")])


def test_a_thread_of_another_rank_is_not_rank_0s(folder):
    """Rank 1 calls another of its threads layers."""
    content = json.loads((folder / "a.json").read_text())
    content["traceEvents"].insert(0, {"name": "thread_name", "pid": 1, "tid": 9, "args": {"name": "layers"}})
    (folder / "a.json").write_text(json.dumps(content))
    assert [time.name for time in read_trace(str(folder / "a.json")).layers()] == ["ip"]


def test_names_and_numbers_of_any_kind_make_a_page_that_xml_can_read(folder):
    """Control characters, what turns text round, noncharacters; losses that are huge, denormal or nearly equal."""
    names = ["a\x00b", "\x1b[31m", "\u202eevil", "\ufffe", "\x85<&>\"'"]
    content = json.loads((folder / "a.json").read_text())
    for name, event in zip(names, content["traceEvents"], strict=False):
        event["args"] = {"name": name}
    for name, event in zip(names, [e for e in content["traceEvents"] if e.get("ph") == "X"], strict=False):
        event["name"] = f"forward {name}"
    (folder / "a.json").write_text(json.dumps(content))
    losses = {0: 1e308, 10: -1e308, 20: 5e-324, 30: 1e300, 40: 3.0}
    write_log(folder / "a.log", losses, {0: 5e-324, 10: 0.0, 20: 5e-324})
    with (folder / "a.log").open("a") as log:
        log.write("I1122 10:00:51.000000 7 x.py:9]     Test net output #1: od\x01d\x7f<b> = 1\n" * 2)
    page = html(find_runs([str(folder / name) for name in ("a.log", "a.json")]), "\x07")
    ElementTree.fromstring(page.replace("<!DOCTYPE html>", "").replace('<meta charset="utf-8">', "")
                           .replace('initial-scale=1">', 'initial-scale=1"/>').replace('light dark">', 'light dark"/>')
                           .replace("'unsafe-inline'\">", "'unsafe-inline'\"/>"))
    assert not [c for c in page if not (c.isprintable() or c == "\n")]
    assert r"od\x01d\x7f&lt;b&gt;" in page
    assert r"\x1b[31m" in page
    assert "nan" not in page


@pytest.mark.parametrize("values", [
    [0.0, 5e-324], [1e99, 1e99 * (1 + 2e-16)], [-1e99, 1e99], [1e-99, 2e-99], [3.0, 3.0], [1e16, 1e16 + 2]])
def test_charts_of_extreme_values_lie_on_the_page(values):
    made = charts.chart("", "", [("a", charts.finite(list(zip(values, values, strict=True))))], charts.SMALL)
    (curve,) = re.findall(r'<polyline[^>]* points="([^"]*)"', made.svg())
    places = [float(number) for point in curve.split() for number in point.split(",")]
    assert len(places) == 4
    assert all(0 <= place <= charts.SMALL.width for place in places)
    assert made.svg().count("<text") < 40


def test_a_page_shows_a_hundred_outputs_and_counts_the_others(tmp_path):
    """A log with thousands of names took minutes."""
    head = "I1122 10:00:00.000000 7 x.py:9] "
    lines = [f"{head}Solving\n", *(f"{head}Iteration {i}, loss = 1\n{head}    Train net output #0: o{i} = {i}\n"
                                   for i in range(3000))]
    (tmp_path / "a.log").write_text("".join(lines))
    page = html(find_runs([str(tmp_path / "a.log")]), "")
    assert "2,900 more outputs are not shown" in page
    assert page.count("<figure") == 200  # over iterations and seconds
    assert cli.main(["parse_log", str(tmp_path / "a.log"), str(tmp_path)]) == 1


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
    assert heads == ["Runs", "Loss and accuracy", "Learning rate and throughput", "Where the time went",
                     "Some iterations, rank by rank", "Layers", "Net", "Settings, versions, machine"]
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
