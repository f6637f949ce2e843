"""Makes ``layers``, ``data`` and ``collectives`` mean ours, whatever lies in the user's working directory."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

NAMES = frozenset({"layers", "data", "collectives"})
HOME = str(Path(__file__).resolve().parent.parent)


class _Siblings(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [HOME]) if name in NAMES else None


def prefer() -> None:
    """Look for our packages beside this one first. ``python -m`` puts the working directory in front of everything,
    and people keep their own ``layers.py`` and ``data/`` there."""
    if not any(isinstance(finder, _Siblings) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Siblings())
