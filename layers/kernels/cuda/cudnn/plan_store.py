"""Which of cuDNN's plans was fastest, and the plan itself, on disk: later runs start at once and give the same bits.

A file holds one choice, so that processes never write over one another's. Processes that share the folder choose one
after another: the first of a node's ranks times, the others find what it chose.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaffe import private_files

FOLDER = "cudnn_plans"
PATIENCE_SECONDS, NAP_SECONDS = 180.0, 0.01
"""How long a process waits for its turn, and between two looks; then it chooses by itself."""


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        plan: its name.
        content: the plan as cuDNN writes it, with the kernels that it compiled; empty where it cannot be written.
    """

    plan: str
    content: bytes = b""


def find(name: str) -> Choice | None:
    """The choice kept under a name; None if there is none, or the file is damaged."""
    path = _file(name)
    found = private_files.read(path) if path else None
    if found is None:
        return None
    head, _, content = found.partition(b"\n")
    with suppress(ValueError):
        said: Any = json.loads(head)
        if isinstance(said, dict) and (said.get("name"), said.get("sha256")) == (name, _hash(content)):
            return Choice(str(said.get("plan")), content)
    return None


def keep(name: str, choice: Choice) -> None:
    """Save a choice. Does nothing if no folder can be written."""
    path = _file(name)
    if path is not None:
        head = {"name": name, "plan": choice.plan, "sha256": _hash(choice.content)}
        with suppress(OSError):
            private_files.write(path, json.dumps(head).encode() + b"\n" + choice.content)


@contextmanager
def turn() -> Iterator[None]:
    """Within it no other process chooses, unless it has waited too long or the file system has no locks."""
    folder, file = private_files.kept_folder(FOLDER), None
    with ExitStack() as stack:
        with suppress(OSError):
            file = stack.enter_context((folder / "lock").open("a")) if folder else None
        if file is not None:
            _wait_for(file)
        yield


def _wait_for(file: Any) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(NAP_SECONDS)
        except OSError:  # no locks here
            return
        else:
            return


def _file(name: str) -> Path | None:
    folder = private_files.kept_folder(FOLDER)
    return folder / _hash(name.encode())[:32] if folder else None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
