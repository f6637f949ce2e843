"""The command line: finds and runs the command, prints an expected error in one line, and returns the exit code."""

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
from contextlib import contextmanager
from pathlib import Path

from scaffe import environment, log, start_watch
from scaffe.cli.commands import GROUPS, MODULES
from scaffe.errors import ROOT_SPEAKS_FIRST_SECONDS, UsageError, UserError, is_expected, one_line, users_traceback

USAGE = "usage: [mpirun -np N] scaffe COMMAND [-flag value ...]"
SEE = "scaffe COMMAND -h lists its flags; scaffe --version says what is installed."
COMMANDS = Path(__file__).parent / "commands"
LOOK_SECONDS = 0.5
GLOG_SWITCHES = frozenset({"logtostderr", "alsologtostderr", "colorlogtostderr", "log_prefix", "logbuflevel",
                           "stop_logging_if_full_disk"})  # all lines go to standard error anyway
GLOG_VALUES = frozenset({"minloglevel", "log_dir", "stderrthreshold", "v", "vmodule", "max_log_size"})
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
        return command(name)(_without_glogs(argv[1:])) or 0
    except Exception as error:
        if not is_expected(error):
            raise
        return fail_before_mpi(one_line(error), 2 if isinstance(error, UsageError) else 1, error)


def _without_glogs(argv: Sequence[str]) -> list[str]:
    """The command line without the flags that glog gives to every program of Caffe; ``-minloglevel N`` and ``-log_dir
    FOLDER`` take effect. Raises UserError for a value that is missing or is not what it must be."""
    rest, words = [], iter(argv)
    for word in words:
        name, has_value, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name.removeprefix("no") not in GLOG_SWITCHES | GLOG_VALUES:
            rest.append(word)
        elif name in GLOG_VALUES:
            value = value if has_value else next(words, "")
            if not value:
                raise UserError(f"{word} needs a value")
            if name == "minloglevel":
                if not value.isdecimal():
                    raise UserError(f"-minloglevel must be 0 (all), 1 (warnings) or 2 (errors), got {value!r}")
                log.set_level(int(value))
            elif name == "log_dir":
                if not Path(value).is_dir():
                    raise UserError(f"-log_dir: there is no folder {value}")
                log.keep_in(value)
    return rest


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
    """As ``fail``, before MPI can end the ranks together.

    The launcher kills all other ranks as soon as one ends with an error, so rank 0, which prints the line, must end
    first. A rank that outlives rank 0's chance to do so has an error of its own, and prints it. A wrong command line is
    the same on all ranks, unless rank 0 is seen to pass. Returns the code, unless MPI has started.
    """
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
    """Whether ranks are lost, perhaps rank 0, which then prints nothing. Imports no further module."""
    errors = sys.modules.get("scaffe.collectives.errors")
    return errors is not None and isinstance(error, errors.LostWhileStarting)


def _root_has_passed(variable: str) -> bool:
    """Whether rank 0 has passed the point at which this rank fails, since it has loaded MPI. If not, it has
    ``ROOT_SPEAKS_FIRST_SECONDS`` to report an error that all ranks have."""
    for _ in range(round(ROOT_SPEAKS_FIRST_SECONDS / LOOK_SECONDS)):
        if "mpi4py.MPI" not in sys.modules and start_watch.root_has_loaded_mpi(variable):
            return True
        time.sleep(LOOK_SECONDS)
    return False


def fail(message: str, code: int, error: BaseException | None = None, speaks: bool = True) -> int:
    """Print an error on standard error, only on the rank that ``speaks`` if all have the same. Returns the code."""
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


READER_GONE = 141
"""The exit code of a program that SIGPIPE ends, as shells count it."""


def open_closed_streams() -> None:
    """Open /dev/null for descriptors 0 to 2 that are closed. The next file opened would get such a number, and a log or
    a C library would write into it."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - for the whole process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


@contextmanager
def quiet_without_a_reader() -> Iterator[None]:
    """End the process quietly if the reader of its output has gone (``| head``), as other programs do. Output that
    standard error cannot take (a full disk) does not change the exit code, which Python would make 120.

    Raises:
        SystemExit: with ``READER_GONE``.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still in the buffer goes there
        raise SystemExit(READER_GONE) from None
    finally:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
