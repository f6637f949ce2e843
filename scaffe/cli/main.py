"""The command line: finds the command, runs it, and says an expected error in one line with an exit code."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scaffe import environment, log, start_watch
from scaffe.cli import glog
from scaffe.cli.commands import GROUPS, MODULES
from scaffe.errors import ROOT_SPEAKS_FIRST_SECONDS, UsageError, is_expected, one_line, users_traceback

USAGE = "usage: [mpirun -np N] scaffe COMMAND [-flag value ...]"
SEE = "scaffe COMMAND -h lists its flags; scaffe --version says what is installed."
COMMANDS = Path(__file__).parent / "commands"
LOOK_SECONDS = 0.5
HELP, VERSION = ("-h", "-help", "--help", "help"), ("-version", "--version", "version")


def main(argv: list[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the command line without the program's name; by default this process's.

    Returns:
        the exit code: 0, 1 after an expected error, 2 for a wrong command line. What is not expected is raised.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in HELP:
        print(help_text())
        return 0 if argv else 2
    if argv[0] in VERSION:
        print(importlib.import_module("scaffe.version").describe())
        return 0
    name = argv[0].replace("-", "_")
    if name not in command_names():
        near = difflib.get_close_matches(name, command_names(), 1)
        hint = f"did you mean {near[0]}?" if near else "scaffe help lists them"
        return fail_before_mpi(f"unknown command {argv[0]!r}; {hint}", 2)
    try:
        if name != "doctor":  # which says what is wrong with them
            environment.check()
        return command(name)(glog.take(argv[1:])) or 0
    except Exception as error:
        if not is_expected(error):
            raise
        return fail_before_mpi(one_line(error), 2 if isinstance(error, UsageError) else 1, error)


def command_names() -> list[str]:
    """All commands, sorted."""
    return sorted(MODULES)


def command(name: str) -> Callable[[list[str]], int | None]:
    """The function of a command, whose module is imported."""
    module = MODULES[name]
    found: Callable[[list[str]], int | None] = getattr(
        importlib.import_module(f"scaffe.cli.commands.{module}"), "main" if module == name else name)
    return found


def help_text() -> str:
    """Usage and the commands by groups, each with the first line of its docstring. Imports none of them."""
    lines = []
    for group, modules in GROUPS.items():
        said = {name: line for module, names in modules.items() for name, line in _first_lines(module, names)}
        lines += ["", f"{group}:", *(f"  {name:26} {said[name]}" for name in sorted(said))]
    return "\n".join([USAGE, *lines, "", SEE])


def _first_lines(module: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The commands of a module, each with the first line of its docstring."""
    tree = ast.parse((COMMANDS / f"{module}.py").read_text())
    nodes: dict[str, ast.FunctionDef | ast.Module] = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    for name in names:
        doc = ast.get_docstring(tree if name == module else nodes[name]) or ""
        yield name, doc.partition("\n")[0]


def fail_before_mpi(message: str, code: int, error: BaseException | None = None) -> int:
    """As ``fail``, where nothing else ends the ranks together: the launcher kills all others as soon as one has ended
    with an error, so rank 0, whose line it is, has to be first. A rank that it leaves alone has an error of its own,
    and says it; a wrong command line is the same one everywhere, unless rank 0 is seen to pass. Returns the code,
    unless MPI has started."""
    start_watch.fails()
    variable, rank = _launched_rank()
    if rank != 0:
        is_own = _is_loss(error) or _root_has_passed(variable)
        if code != 2 or is_own:
            sys.stderr.write(f"scaffe: rank {rank}: {message}\n")
    fail(message, code, error, rank == 0)
    if "mpi4py.MPI" in sys.modules:
        importlib.import_module("scaffe.collectives.launch").end_all(code)
    return code


def _is_loss(error: BaseException | None) -> bool:
    """Whether ranks are lost, perhaps rank 0, which then says nothing. Imports nothing that is not there."""
    errors = sys.modules.get("scaffe.collectives.errors")
    return errors is not None and isinstance(error, errors.LostWhileStarting)


def _root_has_passed(variable: str) -> bool:
    """Whether rank 0 has passed the point at which this rank fails: it has loaded MPI. If it is not seen to, it has
    ``ROOT_SPEAKS_FIRST_SECONDS`` to report the error that all ranks make."""
    for _ in range(round(ROOT_SPEAKS_FIRST_SECONDS / LOOK_SECONDS)):
        if "mpi4py.MPI" not in sys.modules and start_watch.root_has_loaded_mpi(variable):
            return True
        time.sleep(LOOK_SECONDS)
    return False


def fail(message: str, code: int, error: BaseException | None = None, speaks: bool = True) -> int:
    """Say what is wrong on standard error, on the one rank that speaks when every rank says the same. Returns the
    code."""
    with contextlib.suppress(OSError, ValueError):  # a closed or full standard error changes no exit code
        if error is not None and environment.TRACEBACK.get():
            traceback.print_exception(error)
        if speaks:
            log.clear_live()
            sys.stderr.write(f"scaffe: {message}\n{users_traceback(error)}")
    return code


def _launched_rank() -> tuple[str, int]:
    """The variable in which the launcher says this process's rank, and the rank; before (or without) MPI."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return name, int(value)
    return "", 0
