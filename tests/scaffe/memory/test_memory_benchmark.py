"""benchmarks/memory.py: it finds scaffe from any folder, a refused limit is a row, and what is late is named."""

import json
import os
import subprocess
import sys
import sysconfig

import pytest

from tests import pretend
from tests.scaffe.runs import ROOT

SCRIPT = str(ROOT / "benchmarks" / "memory.py")


def bench(folder, *flags, python=sys.executable, **env):
    return subprocess.run([python, SCRIPT, *flags], cwd=folder, capture_output=True, text=True, timeout=280,
                          check=False, env={**os.environ, **env})


def rows_of(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("flags", [
    ("lenet", "-batch", "2", "-limits", "none", "-iterations", "6", "-rounds", "1"),
    ("bars", "-nets", "lenet:fp32", "-limits", "none", "-batch", "2", "-round_seconds", "0.05")])
def test_children_find_scaffe_from_another_folder_without_the_package(tmp_path, flags):
    """By the interpreter below the environment's, which has what scaffe needs and not scaffe."""
    env, python = {"PYTHONPATH": sysconfig.get_path("purelib")}, sys._base_executable
    absent = subprocess.run([python, "-c", "import scaffe"], cwd=tmp_path, env={**os.environ, **env},
                            capture_output=True, text=True, check=False)
    if "No module named 'scaffe'" not in absent.stderr:
        pytest.skip("scaffe is there without the environment")
    done = bench(tmp_path, *flags, python=python, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none" in done.stdout


def test_a_limit_that_is_refused_is_a_row_beside_the_others(tmp_path):
    file = tmp_path / "rows.json"
    done = bench(tmp_path, "bars", "-nets", "lenet:fp32", "-limits", "none,1%,99%", "-batch", "2", "-round_seconds",
                 "0.05", "-json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(done)
    assert rows == json.loads(file.read_text())
    assert [row["limit"] for row in rows] == ["none", "1%", "99%"]
    assert {(row["net"], row["precision"], row["batch"], row["side"]) for row in rows} == {("lenet", "fp32", 2, "ours")}
    assert "are too few; this net trains in" in rows[1]["refused"]
    assert rows[0]["of_first"] == 1.0
    assert rows[2]["of_first"] == pytest.approx(rows[2]["images_per_second"] / rows[0]["images_per_second"])
    assert rows[2]["predicted_slowdown"] >= 1


@pretend.needs_compiler
@pytest.mark.thorough
def test_the_cards_way_runs_on_the_pretend_device(tmp_path):
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "pretend" / "path")])
    done = bench(tmp_path, "bars", "-gpu", "0", "-nets", "lenet:tf32", "-limits", "none,99%", "-batch", "16",
                 "-round_seconds", "0.05", PYTHONPATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(done)
    assert all(row["images_per_second"] > 0 for row in rows)
    assert rows[1]["limit_bytes"] > rows[1]["least_bytes"] > rows[1]["unmovable_bytes"] > 0


def test_what_is_not_ready_is_named(tmp_path):
    done = bench(tmp_path, "bars", "-seconds", "0", "-nets", "lenet:fp32,caffenet:tf32", "-limits", "none,50%")
    assert done.returncode == 1
    assert [(row["net"], row["limit"], row["missing"]) for row in rows_of(done)] == [
        (net, limit, "no time was left") for net in ("caffenet", "lenet") for limit in ("none", "50%")]


def test_rows_that_came_before_the_deadline_are_kept(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    from memory_parts.bars import races, reported

    code = """import json, threading; print(json.dumps({"limit": "none"}), flush=True); threading.Event().wait()"""
    late = list(reported([sys.executable, "-c", code], 4, ["none", "50%"], "limit"))
    assert late == [{"limit": "none"}, {"limit": "50%", "missing": "not ready within 4 s"}]
    failing = list(reported([sys.executable, "-c", "import sys; sys.exit('wrong')"], 60, ["none"], "limit"))
    assert failing == [{"limit": "none", "missing": "exit code 1: wrong"}]
    assert [(race.name, race.batch, len(race.bars)) for race in races()] == [
        ("caffenet tf32", 256, 3), ("resnet50 bf16", 256, 4), ("resnet50 fp32", 256, 4), ("googlenet tf32", 256, 3),
        ("vgg16 bf16", 128, 4)]
