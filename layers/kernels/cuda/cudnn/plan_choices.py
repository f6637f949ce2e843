"""Which of cuDNN's plans was fastest, remembered on disk: later runs start at once and give the same bits."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from pathlib import Path

from scaffe import private_files


def _file() -> Path | None:
    folder = private_files.kept_folder()
    return folder / "cudnn_plans.json" if folder else None


@cache
def _read(path: Path | None) -> dict[str, str]:
    content = private_files.read(path) if path else None
    with suppress(ValueError):
        found = json.loads(content or b"{}")
        if isinstance(found, dict):
            return found
    return {}


def chosen(name: str) -> str | None:
    """The plan remembered for this name; None if there is none."""
    return _read(_file()).get(name)


def remember(name: str, plan: str) -> None:
    """Save a choice, keeping those of other processes. Does nothing if no folder can be written."""
    path = _file()
    _read.cache_clear()
    if path is None:
        return
    with suppress(OSError):
        private_files.write(path, json.dumps({**_read(path), name: plan}, indent=0, sort_keys=True).encode())
    _read.cache_clear()
