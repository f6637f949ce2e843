"""What runs the tests on a GPU: a hung file and one that dies are a failure each, and the results of all are kept."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.gpu import __main__ as runner


def files_of(folder: Path, bodies: dict[str, str]) -> list[str]:
    """Files of tests."""
    for name, body in bodies.items():
        (folder / f"test_{name}.py").write_text(body)
    return [str(folder / f"test_{name}.py") for name in bodies]


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_file_that_dies_is_one_failure_and_the_next_one_runs(tmp_path: Path, n_jobs: int) -> None:
    bodies = {"good": "def test_a():\n    pass\n", "bad": "def test_b():\n    assert 0\n",
              "dies": "import os\n\ndef test_d():\n    os._exit(9)\n", "empty": ""}
    junit = tmp_path / "all.xml"
    assert runner.run(files_of(tmp_path, bodies), 100.0, junit, n_jobs) == 1
    suites = ElementTree.parse(junit).getroot()
    found = {Path(suite.get("name")).stem: (suite.get("tests"), suite.get("failures")) for suite in suites}
    assert found == {"test_good": ("1", "0"), "test_bad": ("1", "1"), "test_dies": ("1", "1"), "test_empty": ("0", "0")}
    assert any("exit code 9" in failure.get("message") for failure in suites.iter("failure"))
    assert runner.run([str(tmp_path / "test_nowhere.py")], 100.0, junit, n_jobs) == 1


def test_a_file_that_hangs_is_ended_and_is_one_failure(tmp_path: Path) -> None:
    """However far it has come when its time is over."""
    hangs = "import threading\n\ndef test_c():\n    threading.Event().wait()\n"
    junit = tmp_path / "all.xml"
    assert runner.run(files_of(tmp_path, {"hangs": hangs}), 1.5, junit) == 1
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert [failure.get("message") for failure in suite.iter("failure")] == ["took more than 1.5 s"]


def test_files_run_at_once(tmp_path: Path) -> None:
    """Each waits for the other."""
    meets = """import os, time

def test_m():
    open({mine!r}, "w").close()
    while not os.path.exists({other!r}):
        time.sleep(0.01)
"""
    names = [str(tmp_path / name) for name in "ab"]
    bodies = {f"meets_{i}": meets.format(mine=names[i], other=names[1 - i]) for i in (0, 1)}
    assert runner.run(files_of(tmp_path, bodies), 100.0, tmp_path / "all.xml", 2) == 0


def test_every_file_is_there() -> None:
    assert [name for name in runner.FILES if not (runner.ROOT / name).is_file()] == []


@pytest.mark.parametrize(("given", "wants_cudnn"), [((), True), (("PY=python3",), False)])
def test_an_environment_of_ones_own_need_not_have_cudnn(given: tuple[str, ...], wants_cudnn: bool) -> None:
    done = subprocess.run(["make", "-n", *given, "gpu"], cwd=runner.ROOT, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if "import cupy" in line]
    assert ("cudnn" in line) == wants_cudnn
    assert ("pip install" in line) == wants_cudnn
