"""What notebooks show: a net's drawing, one line a cell while a solver steps, the losses of logs."""

import sys
from types import ModuleType, SimpleNamespace
from xml.etree import ElementTree

import pytest

import scaffe as caffe
from scaffe.errors import UserError
from scaffe.pycaffe import notebook
from tests.scaffe.pycaffe.pycaffe_nets import LEARNING, small
from tests.scaffe.report.files import write_log

SVG = "{http://www.w3.org/2000/svg}"
SOLVER = """net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 9 snapshot_prefix: "run" random_seed: 1
snapshot_after_train: false"""


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """A notebook's shell, and by cell and display what is there: its texts, the last one visible."""
    shell = SimpleNamespace(kernel=object(), execution_count=1)
    shown = []

    def display(content, raw, display_id):
        assert raw
        assert display_id
        shown.append((shell.execution_count, [content["text/plain"]]))
        return SimpleNamespace(update=lambda content, raw: shown[-1][1].append(content["text/plain"]))

    made = ModuleType("IPython"), ModuleType("IPython.display")
    made[0].get_ipython, made[1].display = lambda: shell, display
    monkeypatch.setitem(sys.modules, "IPython", made[0])
    monkeypatch.setitem(sys.modules, "IPython.display", made[1])
    monkeypatch.setattr(notebook, "REDRAW_SECONDS", 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(LEARNING)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return shell, shown


def iterations(texts):
    return [text.split()[1] for text in texts]


def test_a_cell_has_one_line(shown):
    shell, shown = shown
    solver = caffe.SGDSolver("solver.prototxt")
    solver.step(3)
    for _ in range(2):
        solver.step(1)
    shell.execution_count = 2
    solver.solve()
    assert [cell for cell, _ in shown] == [1, 2]
    assert [iterations(texts) for _, texts in shown] == [["1/3", "2/3", "3/3", "4/4", "5/5"],
                                                         ["6/9", "7/9", "8/9", "9/9"]]
    words = shown[1][1][-1].split()
    assert (words[0], words[2], words[-3:]) == ("iteration", "loss", ["images/s", "0:00", "left"])
    assert float(words[3]) == pytest.approx(float(solver.net.blobs["loss"].data), rel=1e-3)


def test_single_steps_in_a_loop_do_not_draw_at_each(shown, monkeypatch):
    monkeypatch.setattr(notebook, "REDRAW_SECONDS", 1000)
    _, shown = shown
    solver = caffe.SGDSolver("solver.prototxt")
    for _ in range(5):
        solver.step(1)
    assert [iterations(texts) for _, texts in shown] == [["1/1"]]
    solver.step(4)
    assert [iterations(texts) for _, texts in shown] == [["1/1", "9/9"]], "the last of several is always drawn"


def test_outside_notebooks_there_is_none(shown):
    shell, shown = shown
    del shell.kernel  # IPython in a terminal
    caffe.SGDSolver("solver.prototxt").step(2)
    assert shown == []


def test_a_net_shows_its_layers_and_no_splits(tmp_path):
    drawn = ElementTree.fromstring(small(tmp_path)._repr_svg_())
    texts = {text.text for text in drawn.iter(f"{SVG}text")}
    assert {"in", "conv", "relu", "ip", "a", "prob", "Convolution 3", "InnerProduct 7", "Softmax"} <= texts
    assert not [text for text in texts if "split" in (text or "").lower()]
    assert len([text for text in drawn.iter(f"{SVG}text") if text.text == "ip"]) == 1, "its box says it for its arrows"
    assert len(drawn.findall(f"{SVG}path[@class='arrow']")) == 3 + 2 + 2  # a chain, from ip to both, and to their ends
    assert {"Input", "data"} <= texts, "a blob of another name than its layer is beside its arrow"


def test_losses_of_logs_are_drawn(tmp_path):
    write_log(tmp_path / "a.log", {0: 2.0, 10: 1.0}, {0: 0.1})
    write_log(tmp_path / "b.log", {0: 3.0, 10: float("nan"), 20: 1.5}, {})
    drawn = ElementTree.fromstring(caffe.plot_losses(tmp_path / "a.log", tmp_path / "b.log")._repr_svg_())
    curves = [line.attrib["points"].split() for line in drawn.iter(f"{SVG}polyline")]
    assert [len(points) for points in curves] == [2, 2]
    assert {"a train loss", "b train loss", "iterations"} <= {text.text for text in drawn.iter(f"{SVG}text")}
    assert "seconds" in caffe.plot_losses(tmp_path / "a.log", seconds=True).svg()


def test_logs_without_a_loss_are_refused(tmp_path):
    (tmp_path / "log").write_text("I1122 10:00:00.000000 7 solver.py:60] Solving n\n")
    with pytest.raises(UserError, match=r'log: no output with "loss" in its name'):
        caffe.plot_losses(tmp_path / "log")
