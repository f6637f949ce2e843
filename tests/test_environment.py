"""docs/environment.md has every SCAFFE_ variable that the repository reads, and no other."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/environment.md"
NAME = re.compile(r"\bSCAFFE_[A-Z0-9_]*[A-Z0-9]\b")


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
