"""Puts the figures in benchmarks/results into the text of page.md, which makes docs/benchmarks.md, and into the pages
that quote them (`quotes.py`): `make results`.

    python benchmarks/results.py

Each file there is one subject on one machine, as `figures.py` keeps it; a newer run on that machine takes its place.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from figures import RESULTS, shown  # noqa: E402
from pictures import PICTURES  # noqa: E402
from quotes import quoted  # noqa: E402

from scaffe.atomic_files import write_whole  # noqa: E402

TEXT = Path(__file__).resolve().parent / "page.md"
ROOT = TEXT.parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"


def page(text: str, folder: Path) -> str:
    """The text with the tables of each subject, the newest first, where it says ``{{ subject }}``.

    Raises:
        ValueError: the text has no place for a file's subject.
    """
    tables: dict[str, list[str]] = {}
    for one in sorted((json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))), key=_age, reverse=True):
        tables.setdefault(one["subject"], []).append(_table(one))

    def found(match: re.Match[str]) -> str:
        return "\n\n".join(tables.pop(match[1], ["(No figures are kept.)"]))
    filled = re.sub(r"\{\{ ([\w-]+) \}\}", found, text)
    if tables:
        raise ValueError(f"{TEXT.name} has no place for {', '.join(tables)}")
    return filled


def _age(one: dict[str, Any]) -> str:
    return str(one["date"])


def _table(one: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items())
    rows = [_row(one["columns"]), _row(["---", *("---:" for _ in one["columns"][1:])]),
            *(_row([_cell(cell) for cell in row]) for row in one["rows"])]
    where = "; ".join(filter(None, [one["machine"], one["date"], versions]))
    return "\n\n".join([f"{where}. {one['note']}".rstrip(),
                        f"    {one['command']}", "\n".join(rows)])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Any) -> str:
    if isinstance(cell, dict):
        return f"{shown(cell['median'])} ±{cell['spread']:.0%}"
    return shown(cell)


def main() -> None:
    """Write the page and its pictures, and what others quote of it."""
    write_whole(PAGE, page(TEXT.read_text(), RESULTS).encode(), OSError)
    for name, draw in PICTURES.items():
        write_whole(PAGE.parent / name, draw(RESULTS).encode(), OSError)
    for other in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        if other != PAGE and (text := quoted(before := other.read_text(), RESULTS)) != before:
            write_whole(other, text.encode(), OSError)


if __name__ == "__main__":
    main()
