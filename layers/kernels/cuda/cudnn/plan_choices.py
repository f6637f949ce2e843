"""Which of cuDNN's plans was fastest, remembered on disk: later runs start at once and give the same bits."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

VARIABLE = "SCAFFE_CACHE"


def _file() -> Path:
    folder = os.environ.get(VARIABLE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scaffe"
    return Path(folder) / "cudnn_plans.json"


@cache
def _read(path: Path) -> dict[str, str]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def chosen(name: str) -> str | None:
    """The plan that was fastest for this name, if one was found before."""
    return _read(_file()).get(name)


def remember(name: str, plan: str) -> None:
    """Keep a choice, beside those that other processes kept meanwhile. Where no folder can be written nothing is."""
    path = _file()
    _read.cache_clear()
    found = {**_read(path), name: plan}
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(found, indent=0, sort_keys=True))
        fresh.rename(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        return
    _read.cache_clear()
