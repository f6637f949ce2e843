"""Every SCAFFE_ variable has one reader, which knows its values, and a row in docs/environment.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from scaffe import environment
from scaffe.cli import main as cli
from scaffe.cli.doctor import machine
from scaffe.cli.doctor.machine import BROKEN, FINE, SLOWER
from scaffe.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/environment.md"
NAME = re.compile(r"\bSCAFFE_[A-Z0-9_]*[A-Z0-9]\b")
WHOLE = re.compile(rf"""["']({NAME.pattern})["']""")
UNREAD = "_".join(("SCAFFE", "DEADLIN"))


def rows() -> list[list[str]]:
    """The cells of the first table."""
    table = PAGE.read_text().split("Variables of others")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
            if line.startswith("| `")]


@cache
def used() -> set[str]:
    """Every such name in a tracked file that is no page."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names: set[str] = set()
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix != ".md" and path.is_file() and not path.is_symlink():
            names |= set(NAME.findall(path.read_bytes().decode(errors="ignore")))
    return names


def test_every_variable_is_in_the_table():
    assert {row[0].strip("`") for row in rows()} == used()


def test_every_row_says_values_default_and_what_for():
    assert all(len(row) == 4 and all(row) for row in rows())
    names = [row[0] for row in rows()]
    assert len(names) == len(set(names))


def test_pages_name_no_other_variable():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        if page.name != "CHANGELOG.md":
            assert set(NAME.findall(page.read_text())) <= used(), page


def test_the_reader_knows_all_of_them_but_those_of_tests():
    known = {variable.name for variable in environment.VARIABLES}
    assert known == {name for name in used() if not name.startswith(environment.OF_TESTS)}
    defaults = {row[0].strip("`"): row[2] for row in rows()}
    for variable in environment.VARIABLES:
        if variable.default:
            said = variable.default if isinstance(variable.default, str) else f"{float(variable.default):g}"
            assert f"`{said}`" in defaults[variable.name]


def test_no_other_file_reads_them():
    """Their names stand nowhere else in the code; messages may have them. The watch over MPI's start loads nothing of
    ours, and passes on a text that ``check`` looks at right behind it."""
    found = []
    for folder in ("scaffe", "layers", "data", "collectives"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name not in ("environment.py", "start_watch.py"):
                found += [f"{path.relative_to(ROOT)}: {name}" for name in WHOLE.findall(path.read_text())]
    assert not found


WRONG = {"SCAFFE_DEADLINE": ("x", "0x10", "-1", "0", "nan", "inf", "1e400", "1_0", " 5", "9" * 30),
         "SCAFFE_RANKS_PER_NODE": ("x", "1.5", "0", "-1", "\u0663", "9" * 30),
         "SCAFFE_THREADS": ("0", "-2", "all", "4097"),
         "SCAFFE_CUDA_MULTIPROCESSORS": ("half", "-1"), "SCAFFE_CUDA_IPC": ("2", "no"), "SCAFFE_CUDA_AWARE": ("yes",),
         "SCAFFE_BOUNDSCHECK": ("true",), "SCAFFE_BIND": ("cpu", "1"), "SCAFFE_SHOW_BINDING": ("yes",),
         "SCAFFE_LAUNCHER": ("aprun",)}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_a_value_that_cannot_be_is_one_line_with_name_and_range(name, text):
    with pytest.raises(UserError, match="expected") as raised:
        environment.check({name: text})
    assert str(raised.value).startswith(f"{name}={text}: expected ") and "\n" not in str(raised.value)


def test_values_that_can_be():
    given = {"SCAFFE_DEADLINE": "2.5e1", "SCAFFE_RANKS_PER_NODE": "8", "SCAFFE_CUDA_IPC": "0", "SCAFFE_CUDA_AWARE": "1",
             "SCAFFE_ONEDNN": "", "SCAFFE_BIND": "gpu", "SCAFFE_CUDA_MULTIPROCESSORS": "0"}
    environment.check(given)
    assert environment.DEADLINE.get(given) == 25 and environment.DEADLINE.get({}) == 900
    assert environment.RANKS_PER_NODE.get(given) == 8 and environment.BIND.get(given) == "gpu"
    assert environment.CUDA_IPC.get(given) is False and environment.CUDA_IPC.get({}) is True
    assert environment.CUDA_AWARE.get(given) is True and environment.CUDA_AWARE.get({}) is None
    assert environment.CUDA_MULTIPROCESSORS.get(given) == 0 and environment.CUDA_MULTIPROCESSORS.get({}) is None
    assert environment.ONEDNN.get(given) == "" and environment.ONEDNN.get({}) is None


def test_an_empty_one_has_its_default():
    empty = {variable.name: "" for variable in environment.VARIABLES}
    for variable in environment.VARIABLES:
        assert variable.may_be_empty or variable.get(empty) == variable.default


def test_a_command_says_it_before_it_begins(monkeypatch, capfd):
    monkeypatch.setenv("SCAFFE_DEADLINE", "soon")
    assert cli.main(["train", "-solver", "none.prototxt"]) == 1
    said = capfd.readouterr().err
    assert said.startswith("scaffe: SCAFFE_DEADLINE=soon: expected seconds, more than 0") and said.count("\n") == 1


def test_numba_that_may_not_compile_is_one_line(tmp_path):
    done = subprocess.run([sys.executable, "-m", "scaffe", "time", "-model", "none.prototxt"], cwd=tmp_path, text=True,
                          capture_output=True, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, timeout=120)
    line = "scaffe: NUMBA_DISABLE_JIT=1: expected it unset or 0, since kernels run compiled alone\n"
    assert (done.returncode, done.stderr) == (1, line)


def test_doctor_lists_what_is_set():
    given = {"SCAFFE_DEADLINE": "60", "SCAFFE_THREADS": "many", UNREAD: "3", "SCAFFE_ONEDNN": "",
             "OMP_NUM_THREADS": "1", "SCAFFE_TEST_GPU": "1", "HOME": "/root", "SCAFFE_TABLE": ""}
    found = [(each.state, each.said.split(":")[0]) for each in machine.check_settings(given)]
    assert found == [(FINE, "SCAFFE_DEADLINE=60"), (BROKEN, "SCAFFE_THREADS=many"), (FINE, "SCAFFE_ONEDNN="),
                     (FINE, "OMP_NUM_THREADS=1"), (SLOWER, f"{UNREAD}=3")]
    assert not list(machine.check_settings({}))
