"""docs/benchmarks.md is what the kept figures and benchmarks/page.md make; a benchmark's table keeps what it shows."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "benchmarks/page.md").read_text()


@pytest.fixture
def modules(monkeypatch):
    """benchmarks/figures.py and results.py, which are no package."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    names = ("figures", "results", "pictures")
    yield [importlib.import_module(name) for name in names][:2]
    for name in names:
        sys.modules.pop(name)


def test_the_page_is_up_to_date(modules):
    _, results = modules
    assert results.page(TEXT, ROOT / "benchmarks/results") == (ROOT / "docs/benchmarks.md").read_text()
    for name, draw in results.PICTURES.items():
        assert draw(ROOT / "benchmarks/results") == (ROOT / "docs" / name).read_text()


def test_pictures_have_the_points_of_the_newest_file(modules, tmp_path, monkeypatch):
    pictures = importlib.import_module("pictures")
    drawn = []
    monkeypatch.setattr(pictures, "_drawn", lambda title, curves, x, y: drawn.append(dict(curves)) or "")
    for date, speed in (("2026-01-02", 0.9), ("2026-01-01", 0.1)):
        table = {"date": date, "columns": ["net, images, limit", "x no limit"],
                 "rows": [["A, 8, none", 1.0], ["A, 8, 38 %", speed], ["B, 8, 5 % (least 4 %)", 0.5]]}
        (tmp_path / f"memory.disk.{date}.json").write_text(json.dumps(table))
    pictures.memory(tmp_path)
    assert drawn == [{"A": [(100.0, 1.0), (38.0, 0.9)], "B": [(100.0, 1.0), (5.0, 0.5)]}]


def test_the_text_has_a_place_for_each_subject_and_no_other():
    sources = "".join(path.read_text() for path in (ROOT / "benchmarks").rglob("*.py") if path.name != "figures.py")
    assert set(re.findall(r"\{\{ ([\w-]+) \}\}", TEXT)) == set(re.findall(r'\bFigures\(\s*"([\w-]+)"', sources))


def test_a_sample_is_its_median_and_half_the_distance_of_its_quartiles(modules):
    figures, _ = modules
    sample = figures.Sample([10, 12, 11, 30, 13])  # quartiles 11 and 13
    assert (sample.median, sample.spread) == (12, 1 / 12)
    assert figures.Sample([7.0]).spread == 0


@pytest.mark.parametrize("cell, text", [(1234.6, "1,235"), (99.96, "100."), (12.34, "12.3"), (0.01234, "0.0123"),
                                        (2.0, "2"), (None, "-"), ("plain", "plain"), (-150.2, "-150"), (0, "0")])
def test_three_digits(modules, cell, text):
    figures, _ = modules
    assert figures.shown(cell) == text.rstrip(".")


def test_what_is_kept_is_what_the_page_shows(modules, tmp_path, monkeypatch, capsys):
    figures, results = modules
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["/a/b/benchmarks/some.py", "--peer", "/home/me/bin/python", "--keep"])
    with figures.Figures("some", ("net", "s", "x"), "Two rounds.", True, {"PyTorch": "2.0"}, "4") as table:
        table.add("first", figures.Sample([1.0, 3.0]), None)
    (kept,) = (tmp_path / "results").iterdir()
    content = json.loads(kept.read_text())
    assert kept.name.startswith("some.4.")
    assert content["command"] == "python benchmarks/some.py --peer python --keep"
    assert content["rows"] == [["first", {"median": 2.0, "spread": 0.25, "rounds": 2}, None]]
    page = results.page("# A\n\n{{ some }}\n\n{{ none }}\n", tmp_path / "results")
    assert "| net | s | x |\n| --- | ---: | ---: |\n| first | 2 ±25% | - |" in page
    assert "Two rounds." in page and "PyTorch 2.0" in page and "(No figures are kept.)" in page
    assert "first" in capsys.readouterr().out


def test_nothing_is_kept_of_a_run_that_ends_early_or_was_not_asked_for(modules, tmp_path, monkeypatch):
    figures, _ = modules
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    with pytest.raises(SystemExit), figures.Figures("some", ("net",), keep=True) as table:
        table.add("first")
        raise SystemExit("the sides differ")
    with figures.Figures("some", ("net",)) as table:
        table.add("first")
    assert not (tmp_path / "results").exists()


def test_a_row_of_another_length_and_a_subject_without_a_place_are_refused(modules, tmp_path):
    figures, results = modules
    with figures.Figures("some", ("net", "s")) as table, pytest.raises(ValueError, match="expected 2 cells, got 1"):
        table.add("first")
    (tmp_path / "odd.json").write_text(json.dumps({
        "subject": "odd", "machine": "m", "date": "2026-01-01", "command": "c", "versions": {}, "note": "",
        "columns": ["a"], "rows": []}))
    with pytest.raises(ValueError, match="no place for odd"):
        results.page("text", tmp_path)


def test_the_newest_comes_first(modules, tmp_path):
    _, results = modules
    for number, date in enumerate(("2026-01-02", "2026-03-01", "2025-12-31")):
        (tmp_path / f"{number}.json").write_text(json.dumps({
            "subject": "some", "machine": f"m{number}", "date": date, "command": "c", "versions": {"V": "1"},
            "note": "", "columns": ["a"], "rows": [["x"]]}))
    found = re.findall(r"^m(\d);", results.page("{{ some }}", tmp_path), re.MULTILINE)
    assert found == ["1", "0", "2"]
