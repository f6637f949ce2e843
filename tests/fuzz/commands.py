"""python -m tests.fuzz.commands SOCKET: a process that has imported every command and computed nothing.

Each command line that comes over the socket runs in a forked child of it, under limits of time, memory, address space
and descriptors: a process of its own for each would take a second to start, and a child of one that has computed lacks
its threads.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from scaffe.cli.main import command, command_names

LIMIT_SECONDS = 60  # by the clock, and of processor time
LIMIT_BYTES, ADDRESS_BYTES, N_DESCRIPTORS, FILE_BYTES = 3 << 30, 8 << 30, 256, 64 << 20
LOG_LEVELS, NOTES = tuple("IWE"), ("left out: ",)  # of an image that cannot be read


def verdict(words: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """What is wrong with how a command line ends: "" where its code is 0, or 1 or 2 after one line.

    Args:
        words: the command line without the program's name.
        environment: variables that it has besides.
        folder: where it runs; what it says lies beside it.
    """
    reply = _ask({"words": list(words), "environment": dict(environment), "folder": str(folder),
                  "seconds": LIMIT_SECONDS})
    status, n_bytes = reply["status"], reply["bytes"]
    said = Path(f"{folder}.err").read_bytes().decode(errors="replace").splitlines()
    if status is None:
        return f"no end within {LIMIT_SECONDS} s"
    if os.WIFSIGNALED(status):
        return f"dies of {signal.Signals(os.WTERMSIG(status)).name}: {' / '.join(said[-2:])[:500]}"
    if n_bytes > LIMIT_BYTES:
        return f"takes {n_bytes} bytes of memory"
    if any(line.startswith("Traceback") for line in said):
        return f"a traceback: {said[-1][:500]}"
    code = os.waitstatus_to_exitcode(status)
    lines = [line for line in said if line and not line.startswith(NOTES)
             and not (line.startswith(LOG_LEVELS) and line[1:5].isdigit())]
    n_expected = 1 if code and words[0] != "doctor" else len(lines)  # doctor prints a page, and its code sums it up
    if code not in (0, 1, 2) or len(lines) != n_expected:
        return f"ends with {code} after {len(lines)} lines: {' / '.join(lines)[:500]}"
    return ""


@cache
def _address() -> str:
    """The socket of the process, which is started when it is first needed and ends with this one."""
    folder = tempfile.mkdtemp(prefix="fuzz-commands-")
    process = subprocess.Popen([sys.executable, "-m", __name__, f"{folder}/socket"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True)
    _kept.append(process)
    if process.stdout is None or process.stdout.readline() != "ready\n":
        raise RuntimeError("the process that runs command lines has not started")
    return f"{folder}/socket"


_kept: list[subprocess.Popen[str]] = []


def _ask(request: dict[str, object]) -> dict[str, int]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(_address())
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as lines:
            reply: dict[str, int] = json.loads(lines.readline())
    return reply


def serve(address: str) -> None:
    """Run what comes until standard input ends."""
    for name in command_names():
        command(name)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as lines:
                lines.write(json.dumps(_run(json.loads(lines.readline()))) + "\n")
    Path(address).unlink()
    Path(address).parent.rmdir()


def _run(request: dict[str, object]) -> dict[str, int | None]:
    child = os.fork()
    if child == 0:
        _child(request)
    handle = os.pidfd_open(child)
    is_over = bool(select.select([handle], [], [], float(str(request["seconds"])))[0])
    os.close(handle)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has started, too
    _, status, usage = os.wait4(child, 0)
    return {"status": status if is_over else None, "bytes": usage.ru_maxrss << 10}


def _child(request: dict[str, object]) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        _redirect(str(request["folder"]))
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        os.chdir(str(request["folder"]))
        sys.path.insert(0, "")
        _limit()
        sys.argv = ["scaffe", *request["words"]]  # type: ignore[misc]
        code = importlib.import_module("scaffe.__main__").main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(folder: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, ending in ((1, "out"), (2, "err")):
        made = os.open(f"{folder}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(made, number)
        os.close(made)


def _limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for what, most in ((resource.RLIMIT_AS, used + ADDRESS_BYTES), (resource.RLIMIT_NOFILE, N_DESCRIPTORS),
                       (resource.RLIMIT_CPU, LIMIT_SECONDS), (resource.RLIMIT_FSIZE, FILE_BYTES),
                       (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))


if __name__ == "__main__":
    serve(sys.argv[1])
