"""Figures that the README and other pages quote: `make results` draws them too, from benchmarks/results.

A page quotes a figure by a link to its table, whose title is the figure's name, ``file / column / row``:

    [3.8](benchmarks.md#data-parallel-training-on-one-machine "overlap.4-device / x the first / sc-rs:auto")

A file goes by its subject and variant. Kept on several machines, or with ``*`` in the row's name, it is a range. With
a second row, ``file / column / row / row``, it is the first row's value over the second's.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from figures import shown

LINK = re.compile(r'\[([^][]*)\](\((?:\.\./|docs/)?benchmarks\.md#([\w-]+)(?: "([^"]+)")?\))')
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def quoted(text: str, folder: Path) -> str:
    """A page's text with the newest values of the figures that it quotes by name.

    Raises:
        ValueError: no figure has such a name.
    """
    def drawn(link: re.Match[str]) -> str:
        return f"[{figure(link[4], folder)}]{link[2]}" if link[4] else link[0]
    return LINK.sub(drawn, text)


def figure(name: str, folder: Path) -> str:
    """The figure of a name, in two digits below 10 and three above; a range from its least value to its largest."""
    file, column, *rows = name.split(" / ")
    tables = [json.loads(path.read_text()) for path in folder.glob("*.json") if path.name.startswith(f"{file}.")]
    values = [value for table in tables if column in table["columns"] for value in _values(table, column, rows)]
    if not values:
        raise ValueError(f"{folder.name} has no figure {name!r}")
    return " to ".join(dict.fromkeys(map(_spoken, (min(values), max(values)))))


def _values(table: dict[str, Any], column: str, rows: list[str]) -> list[float]:
    """One row's values or several rows'; or of each two rows that are named the first over the second."""
    place = table["columns"].index(column)
    first, *others = ([value for row in table["rows"] if fnmatchcase(row[0].removesuffix(" *"), wanted)
                       for value in _numbers(row[place])] for wanted in rows)
    return [above / below for above in first for below in others[0]] if others else first


def _numbers(cell: Any) -> list[float]:
    """A cell's median, its number, or all numbers of its text."""
    if isinstance(cell, dict):
        return [cell["median"]]
    if isinstance(cell, str):
        return [float(number.replace(",", "")) for number in NUMBER.findall(cell)]
    return [] if cell is None else [cell]


def _spoken(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 9.95 else shown(value)
