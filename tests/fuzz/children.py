"""Reads inputs in forked children under limits of time and memory, and says what became of each."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from scaffe.errors import ExpectedError

Files = dict[str, bytes]  # an input: a folder's files by name
Read = Callable[[Path], object]
LIMIT_SECONDS = 10  # of processor time
CLOCK_SECONDS = 60  # by the clock, for a busy machine
LIMIT_BYTES = 2 << 30
AT_ONCE = 50  # inputs a child reads, since starting one takes longer than most inputs


def verdicts(read: Read, inputs: Sequence[Files], patience: int = 1) -> list[str]:
    """What is wrong with how each input was read: "" where it was read, or refused in one line that names its file.

    Args:
        read: reads the folder in which an input lies, which is the current one; runs in a child.
        inputs: any number.
        patience: how many times the limits of time an input may take.
    """
    found: list[str] = []
    while len(found) < len(inputs):
        some = inputs[len(found):len(found) + AT_ONCE]
        told, status = _in_child(read, some, patience)
        found += told
        if len(told) < len(some):
            found.append(_end(status, patience))
    return found


def _in_child(read: Read, inputs: Sequence[Files], patience: int) -> tuple[list[str], int]:
    """The verdicts of the inputs that were read to the end, and the child's exit status."""
    here, there = os.pipe()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        child = os.fork()
        if child == 0:
            os.close(here)
            _child(read, inputs, patience, Path(folder), there)
        os.close(there)
        with os.fdopen(here) as lines:
            told = [json.loads(line) for line in lines]
        _, status = os.waitpid(child, 0)
    return told, status


def _end(status: int, patience: int) -> str:
    deadly = {signal.SIGPROF: f"hangs for {LIMIT_SECONDS * patience} s",
              signal.SIGALRM: f"waits for {CLOCK_SECONDS * patience} s"}
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        return deadly.get(number, f"dies of {number.name}")
    return f"exits with {os.waitstatus_to_exitcode(status)}"


def _child(read: Read, inputs: Sequence[Files], patience: int, folder: Path, told: int) -> None:
    """Never returns."""
    try:
        faulthandler.disable()  # what becomes of the child is the parent's to tell
        _limit_memory()
        with open(os.devnull, "w") as nothing:  # noqa: PTH123 - libraries print what they think of the input
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
        warnings.simplefilter("ignore")
        gc.freeze()
        for number, files in enumerate(inputs):
            verdict = _verdict(read, files, patience, folder / str(number))
            os.write(told, json.dumps(verdict).encode() + b"\n")
    finally:
        os._exit(0)


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, used + LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _verdict(read: Read, files: Files, patience: int, folder: Path) -> str:
    lay_out(files, folder)
    os.chdir(folder)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS * patience)
    signal.setitimer(signal.ITIMER_REAL, CLOCK_SECONDS * patience)
    try:
        read(folder)
        return ""
    except ExpectedError as error:
        return _of_line(error, folder, files)
    except MemoryError:
        return f"takes more than {LIMIT_BYTES} bytes\n{traceback.format_exc()}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
        gc.collect()


def lay_out(files: Files, folder: Path) -> None:
    """Make the folder of an input."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _of_line(error: BaseException, folder: Path, files: Files) -> str:
    """What is wrong with a refusal."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return f"takes more than {LIMIT_BYTES} bytes: {error}"
        cause = cause.__cause__ or cause.__context__
    line = str(error)
    if len(line.splitlines()) != 1 or len(line) > 2000:
        return f"is refused in {len(line.splitlines())} lines of {len(line)} characters: {line[:2000]!r}"
    if not line.startswith("/") and not any(name in line for name in (*files, str(folder), "o such file")):
        return f"is refused without a file's name: {line}"
    return ""
