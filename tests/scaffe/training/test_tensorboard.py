"""Event files of train -tensorboard: the log's numbers, and histograms of what the net holds."""

import importlib
import re
import struct
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest

from scaffe.cli import main as cli
from tests.scaffe.runs import command

NET = """name: "n"
layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 6 dim: 7 } shape { dim: 6 dim: 3 }
  data_filler { type: "gaussian" } data_filler { type: "constant" value: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3
  weight_filler { type: "constant" value: 0.5 } } }
layer { name: "fixed" type: "InnerProduct" bottom: "ip" top: "ip2" param { lr_mult: 0 } param { lr_mult: 0 }
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "y" top: "loss" }
layer { name: "sum" type: "Reduction" bottom: "ip2" top: "sum" reduction_param { axis: 1 } }
"""
SOLVER = """net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 5 display: 2 test_iter: 1 test_interval: 4
snapshot_prefix: "run" snapshot_after_train: false random_seed: 3 debug_info: true
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def events(folder):
    """All values of the folder's event files: name → step → value or histogram. A record (TFRecord) is its length in 8
    bytes, 4 of a checksum, the message, and 4 of another checksum."""
    event_pb2 = importlib.import_module("tensorboardX.proto.event_pb2")
    found = defaultdict(dict)
    for path in folder.glob("events.out.tfevents.*"):
        content = path.read_bytes()
        while content:
            n_bytes, = struct.unpack("<Q", content[:8])
            event = event_pb2.Event.FromString(content[12:12 + n_bytes])
            content = content[16 + n_bytes:]
            for value in event.summary.value:
                found[value.tag][event.step] = value.histo if value.HasField("histo") else value.simple_value
    return found


def test_they_have_the_logs_numbers_and_histograms(folder, capfd):
    pytest.importorskip("tensorboardX")
    assert cli.main(["train", "-solver", "solver.prototxt", "-tensorboard", "made/events"]) == 0
    log = capfd.readouterr().err
    found = events(folder / "made/events")
    losses = {int(i): float(v) for i, v in re.findall(r"Iteration (\d+) \(.*\), loss = (\S+)", log)}
    assert list(losses) == [0, 2, 4]
    assert found["train/smoothed_loss"] == pytest.approx(losses, rel=1e-4)
    assert found["train/learning_rate"] == pytest.approx({0: 0.001, 2: 0.001, 4: 0.001})
    tests = [float(value) for value in re.findall(r"Test net output #0: loss = (\S+)", log)]
    assert list(found["test/loss"]) == [0, 4]
    assert list(found["test/loss"].values()) == pytest.approx(tests, rel=1e-4)
    assert {f"train/sum/{i}" for i in range(6)} <= set(found)
    assert {name for name in found if name.startswith(("parameters/", "gradients/"))} \
        == {f"{kind}/{layer}/{i}" for kind in ("parameters", "gradients") for layer in ("ip", "fixed") for i in (0, 1)}
    first = found["parameters/ip/0"][0]
    assert (first.num, first.min, first.max, first.sum) == (21, 0.5, 0.5, 10.5)
    assert sorted(found["gradients/ip/0"]) == [0, 2, 4]
    assert all(histogram.max > histogram.min for histogram in found["gradients/ip/0"].values())


def test_what_it_cannot_do_is_one_line(folder, capfd, monkeypatch):
    pytest.importorskip("tensorboardX")
    (folder / "file").write_text("")
    assert cli.main(["train", "-solver", "solver.prototxt", "-tensorboard", "file/events"]) == 1
    assert "scaffe: -tensorboard file/events cannot be written: not a directory\n" in capfd.readouterr().err
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert cli.main(["train", "-solver", "solver.prototxt", "-tensorboard", "events"]) == 1
    assert "pip install 'scaffe[tensorboard]'" in capfd.readouterr().err


def test_parameters_that_run_away_stop_nothing(folder):
    """Huge ones, whose gradients are infinite, and whose histogram has no bins."""
    pytest.importorskip("tensorboardX")
    (folder / "net.prototxt").write_text(NET.replace("value: 0.5", "value: 3e38"))
    assert cli.main(["train", "-solver", "solver.prototxt", "-tensorboard", "events", "-allow_nan"]) == 0
    found = events(folder / "events")
    assert list(found["train/loss"]) == [0, 2, 4]
    assert np.isfinite([histogram.max for name, steps in found.items() if name.startswith("parameters/")
                        for histogram in steps.values()]).all()


FULL = """import resource
from scaffe import Layer
class Fills(Layer):
    def setup(self, bottom, top): self.n_passes = 0
    def reshape(self, bottom, top): top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        self.n_passes += 1
        if self.n_passes == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        top[0].data[...] = bottom[0].data
    def backward(self, top, propagate_down, bottom): pass
"""


@pytest.mark.parametrize(("n_ranks", "debug_info"), [
    (1, "true"), pytest.param(2, "false", marks=pytest.mark.mpi_job),
    pytest.param(1, "false", marks=pytest.mark.thorough),
    pytest.param(2, "true", marks=[pytest.mark.mpi_job, pytest.mark.thorough])])
def test_a_disk_that_becomes_full_is_a_line_and_training_goes_on(folder, n_ranks, debug_info):
    pytest.importorskip("tensorboardX")
    (folder / "full.py").write_text(FULL)
    layer = 'layer { name: "f" type: "Python" bottom: "y" top: "z" python_param { module: "full" layer: "Fills" } }\n'
    head, loss = NET.split('layer { name: "loss"')
    loss = loss.replace('bottom: "y"', 'bottom: "z"')
    (folder / "net.prototxt").write_text(f'{head}{layer}layer {{ name: "loss"{loss}')
    (folder / "solver.prototxt").write_text(SOLVER.replace("debug_info: true", f"debug_info: {debug_info}")
                                            .replace("max_iter: 5 display: 2", "max_iter: 60 display: 1"))
    done = subprocess.run(command("train", "-solver", "solver.prototxt", "-tensorboard", "events", "-threads", "1",
                                  n_ranks=n_ranks), cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    file, = (folder / "events").iterdir()
    assert re.findall("-tensorboard events: .*", done.stderr) == [
        f"-tensorboard events: events/{file.name} cannot be written (file too large); training goes on without it"]
    assert "Iteration 60, loss" in done.stderr and "Traceback" not in done.stderr and "Exception" not in done.stderr
