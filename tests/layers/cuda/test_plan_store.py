"""Choices of cuDNN's plans on disk: found again whole or not at all, and made by one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scaffe.layers.kernels.cuda.cudnn import plans
from scaffe.layers.kernels.cuda.cudnn.plans import Choice

PROGRAM = """
import sys
from pathlib import Path
from scaffe.layers.kernels.cuda.cudnn import plans
for n in range(20):
    with plans.turn():
        known = plans.find("count")
        plans.keep("count", plans.Choice(str(int(known.plan if known else 0) + 1), b"x\\n" * n))
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_kept_is_found_under_its_name() -> None:
    assert plans.find("a") is None
    plans.keep("a", Choice("eng1", bytes(range(256))))
    plans.keep("b", Choice("eng2"))
    assert plans.find("a") == Choice("eng1", bytes(range(256)))
    assert plans.find("b") == Choice("eng2")


@pytest.mark.parametrize("content", [b"", b"{}\n", b"[1]\n", b"\xff\n", b'{"name": "a", "plan": "p", "sha256": ""}\nx'])
def test_a_damaged_file_is_none(cache: Path, content: bytes) -> None:
    plans.keep("a", Choice("eng1", b"plan"))
    (path,) = (cache / plans.FOLDER).iterdir()
    path.write_bytes(content)
    assert plans.find("a") is None


def test_processes_choose_one_after_another() -> None:
    running = [subprocess.Popen([sys.executable, "-c", PROGRAM]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert plans.find("count") == Choice("60", b"x\n" * 19)


def test_a_process_that_waits_too_long_for_its_turn_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "PATIENCE_SECONDS", 0.05)
    with plans.turn(), plans.turn():
        plans.keep("a", Choice("eng1"))
    assert plans.find("a") == Choice("eng1")
