"""`make bench-gpu`'s script on the pretend CuPy: every part, and that a part that fails stops no other."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests import pretend
from tests.scaffe.runs import ROOT

pytestmark = pretend.needs_compiler


def bench(*flags, cupy=ROOT / "tests" / "pretend" / "path"):
    """The script's run."""
    path = os.pathsep.join([str(ROOT), str(cupy)])
    return subprocess.run([sys.executable, "benchmarks/gpu.py", "--peer", "", *flags], cwd=ROOT, capture_output=True,
                          text=True, timeout=150, check=False, env=os.environ | {"PYTHONPATH": path})


def test_decoding_is_compared_and_timed(tmp_path):
    pytest.importorskip("cv2")
    file = tmp_path / "gpu.json"
    done = bench("--json", str(file), "--parts", "decode",
                 "--decode=--images 6 --records 12 --batch 4 --readers 1,2 --seconds 0.01")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())["decode"]
    assert [row["what"] for row in rows] == ["pixels 444", "pixels 422", "pixels 420", "-decode gpu, 1 readers",
                                             "-decode gpu, 2 readers", "-decode host, 1 readers",
                                             "-decode host, 2 readers"]
    assert all((row["files"], row["decoded"], row["largest"]) == (2, 2, 0) for row in rows[:3])
    assert all(row["images_per_second"] > 0 for row in rows[3:])
    assert not any(row["first_error"] for row in rows)


@pytest.mark.thorough
@pytest.mark.mpi_job
def test_a_part_that_fails_stops_no_other(tmp_path):
    file = tmp_path / "gpu.json"
    done = bench("--json", str(file), "--nets", "lenet,no_such_net", "--precisions", "bf16", "--batch", "2",
                 "--elems", "5000", "--round-seconds", "0.01", "--ranks", "2", "--steps", "1",
                 "--inference-batches", "1,3", "--small", "", "--parts", "unknown,update,nets,inference,ranks")
    assert done.returncode == 1
    found = json.loads(file.read_text())
    assert [row["rule"] for row in found["update"]] == ["copy", "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta",
                                                        "Adam"]
    assert [row.get("net") for row in found["nets"]] == ["lenet", "no_such_net"]
    assert found["nets"][0]["images_per_second"] > 0
    assert "invalid choice: 'no_such_net'" in found["nets"][1]["error"]
    assert [(row["net"], row["batch"], "error" in row) for row in found["inference"]] == [
        ("lenet", 1, False), ("lenet", 3, False), ("no_such_net", 1, True), ("no_such_net", 3, True)]
    assert [row["way"] for row in found["ranks"]] == ["sc-b:auto", "sc-ob:auto", "sc-obr:auto", "sc-rs:auto"]
    assert found["unknown"] == [{"what": "unknown", "error": "KeyError: 'unknown'"}]


def test_rows_are_there_as_they_come_and_a_command_that_is_late_is_ended(tmp_path):
    sys.path[:0] = [str(ROOT / "benchmarks")]
    from streamed import Streamed

    code = "import threading; print(1, flush=True); print(2, flush=True); threading.Event().wait()"
    running = Streamed([sys.executable, "-c", code], 5, os.environ, tmp_path)
    assert list(running) == ["1\n", "2\n"]
    assert (running.is_late, running.code) == (True, -15)
    failing = Streamed([sys.executable, "-c", "import sys; print(3); sys.exit('wrong')"], 60, os.environ, tmp_path)
    assert list(failing) == ["3\n"]
    assert (failing.is_late, failing.code, failing.errors) == (False, 1, "wrong\n")


def test_no_time_left_is_said(tmp_path):
    done = bench("--seconds", "0", "--parts", "update")
    assert "update kernels failed: no time was left" in done.stdout


def test_without_a_gpu_it_says_so_in_one_line(tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('no such package')")
    done = bench(cupy=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("gpu: a GPU needs CuPy, which cannot be imported (no such package)")
    assert done.stderr.count("\n") == 1


def test_compilations_run_one_after_another_until_time_is_up(tmp_path):
    sys.path[:0] = [str(ROOT / "benchmarks")]
    from gpu_parts.preparing import Compilation, Preparing

    order = tmp_path / "order"
    note = f"open({str(order)!r}, 'a').write"
    waits = "import threading; threading.Event().wait()"
    done = Preparing([Compilation(name, [sys.executable, "-c", code]) for name, code in (
        ("first", f"{note}('1')"), ("second", f"{note}('2'); raise SystemExit('no kernel')"),
        ("third", f"{note}('3')"))], os.environ, tmp_path)
    done.finish(60)
    assert order.read_text() == "123"
    assert [done.why_not(name) for name in ("first", "second", "third")] == ["", "no kernel", ""]
    late = Preparing([Compilation(name, [sys.executable, "-c", waits]) for name in "ab"], os.environ, tmp_path)
    late.finish(0.01)
    assert [late.why_not(name) for name in "ab"] == ["not compiled in the time there was"] * 2


def test_bars_are_met_missed_or_not_measured():
    """By hand: 256 images at 10,240 a second are 25 ms."""
    sys.path[:0] = [str(ROOT / "benchmarks")]
    from gpu_parts.bars import shown, verdicts

    def row(what, rate):
        return {"what": what, "images_per_second": rate}
    found = verdicts({"nets": [row("resnet50 bf16 batch 256 ours", 10240.0), {"what": "late", "error": "late"},
                               row("resnet50 bf16 batch 256 torch compile", 8000.0)],
                      "inference": [row("vgg16 bf16 batch 1 ours", 3.0), row("vgg16 bf16 batch 1 torch tensorrt", 2)]})
    lines = [shown(each) for each in found]
    assert "resnet50 bf16 batch 256: met (27 ms asked, 25.00)" in lines
    assert "resnet50 bf16 batch 256 beside torch compile: not met (1.3x asked, 1.28)" in lines
    assert "vgg16 bf16 batch 1 beside torch tensorrt: met (1x asked, 1.50)" in lines
    assert "resnet50 bf16 batch 32 beside torch reduce-overhead: not measured (1.2x asked)" in lines
    assert sorted(str(each["met"]) for each in found if each["met"] is not None) == ["False", "True", "True"]


def test_weights_are_written_without_a_gpu_as_a_net_on_one_has_them(tmp_path):
    """The same seed gives the same fillers' draws on the host."""
    file = tmp_path / "lenet.npz"
    command = [sys.executable, "benchmarks/gpu_parts/ours.py", "lenet", "--batch", "3", "--save", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = np.load(file)
    assert found["data"].shape == (3, 1, 28, 28)
    assert found["conv1.weight"].shape == (20, 1, 5, 5)
    assert np.abs(found["conv1.weight"]).max() > 0
