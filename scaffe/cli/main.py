"""The command line: finds the command, and turns a user's mistake into one line and an exit code."""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import pkgutil
import sys
import traceback
from pathlib import Path

from scaffe.cli import glog
from scaffe.errors import EXPECTED, one_line

USAGE = "usage: [mpirun -np N] python -m scaffe COMMAND [-flag value ...]"


def main(argv: list[str] | None = None) -> int:
    """Run a command. Returns the exit code: 0, 1 after an error, 2 for a wrong command line."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "-help", "--help", "help"):
        print(help_text())
        return 0 if argv else 2
    name = argv[0].replace("-", "_")
    if name not in command_names():
        near = difflib.get_close_matches(name, command_names(), 1)
        hint = f"did you mean {near[0]}?" if near else "python -m scaffe help lists them"
        return fail(f"unknown command {argv[0]!r}; {hint}", 2)
    try:
        return importlib.import_module(f"scaffe.cli.commands.{name}").main(glog.take(argv[1:])) or 0
    except EXPECTED as error:
        return fail(one_line(error), 1, error)


def command_names() -> list[str]:
    """All commands, sorted."""
    package = importlib.import_module("scaffe.cli.commands")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def help_text() -> str:
    """Usage and the commands, each with the first line of its file."""
    folder = Path(__file__).parent / "commands"
    lines = []
    for name in command_names():
        doc = ast.get_docstring(ast.parse((folder / f"{name}.py").read_text())) or ""
        lines.append(f"  {name:27s} {doc.splitlines()[0] if doc else ''}")
    return "\n".join([USAGE, "", *lines])


def fail(message: str, code: int, error: BaseException | None = None) -> int:
    """Say what is wrong on standard error, on rank 0 alone when every rank says the same. Returns the code."""
    if error is not None and os.environ.get("SCAFFE_TRACEBACK"):
        traceback.print_exception(error)
    if _launched_rank() == 0:
        sys.stderr.write(f"scaffe: {message}\n")
    return code


def _launched_rank() -> int:
    """This process's rank as the launcher says, before (or without) MPI."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0
