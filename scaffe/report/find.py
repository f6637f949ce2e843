"""Finds the files of each run: logs and traces, named one by one or by their folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from scaffe.errors import UserError
from scaffe.input_files import open_input, read_text_input, told
from scaffe.report.caffe_log import tells_of_training
from scaffe.report.run import Run, read_run

LOG, TRACE = "log", "trace"
HEAD_BYTES = 1 << 16
STAMPED = re.compile(rb"(?m)^[IWEF]\d{4,8} \d\d:\d\d:\d\d\.")


def find_runs(paths: Sequence[str]) -> list[Run]:
    """Read the runs that paths name. A log and a trace are one run if their names differ only in the ending, or if they
    are the only log and the only trace of a folder or of all paths.

    Raises:
        UserError: a path is missing or is neither a log nor a trace, a folder has none of them, or a file is damaged.
    """
    groups: dict[str, dict[str, str]] = {}
    loose = [path for path in paths if not Path(path).is_dir()]
    _add(groups, "", [(path, _kind(path)) for path in loose])
    for path in paths:
        if Path(path).is_dir():
            _add(groups, Path(path).resolve().name, _inside(path))
    return [read_run(name, files.get(LOG, ""), files.get(TRACE, "")) for name, files in groups.items()]


def files_of(paths: Sequence[str]) -> list[str]:
    """The logs and traces that paths name. Raises UserError for a folder that has none."""
    return [file for path in paths for file in ([file for file, _ in _inside(path)] if Path(path).is_dir() else [path])]


def _add(groups: dict[str, dict[str, str]], folder: str, files: list[tuple[str, str]]) -> None:
    """Enter files that were found together."""
    kinds = [kind for _, kind in files]
    is_one_run = len(set(kinds)) == len(kinds)
    for path, kind in files:
        stem = Path(files[0][0] if is_one_run else path).name.split(".log")[0].removesuffix(".json")
        name = folder if folder and is_one_run else "/".join(filter(None, (folder, stem)))
        while kind in groups.get(name, {}):
            name += "'"  # another folder's of the same name
        groups.setdefault(name, {})[kind] = path


def _inside(folder: str) -> list[tuple[str, str]]:
    """A folder's logs and traces, by name; links, as glog makes beside its logs, are left out."""
    found = []
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and not path.is_symlink():
            kind = _guess(str(path))
            found += [(str(path), kind)] if kind else []
    if not found:
        raise UserError(f"{folder}: has no log of train and no trace of train -timeline")
    return found


def _kind(path: str) -> str:
    with told(path):
        kind = _guess(path)
    if not kind:
        raise UserError(f"{path}: neither a log of train nor a trace of train -timeline")
    return kind


def _guess(path: str) -> str:
    """Whether a file is a log or a trace, by its beginning; empty if neither. Raises OSError."""
    with open_input(path) as file:
        head = file.read(HEAD_BYTES)
    if head.lstrip().startswith(b'{"traceEvents"'):
        return TRACE
    if not STAMPED.search(head):
        return ""
    lines = read_text_input(path, "replace").splitlines()  # a net that is told of may be longer than the head
    return LOG if any(map(tells_of_training, lines)) else ""
