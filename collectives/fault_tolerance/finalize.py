"""How a rank leaves MPI, in place of mpi4py, whose own finalizing is switched off.

Where ranks may be lost, without MPI_Finalize, since Open MPI's may wait for ever after a loss: it did in 3 of 44 runs
of a trial that had gone on after a kill; ranks that met and then ended without it, in 0 of 40. And nowhere in a forked
child, which ends as any process does: MPI_Finalize would wait there for ranks that do not come (Open MPI 5.0).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

LATEST_SECONDS = 20
PMIX_USERS = 4
"""At most so many parts of Open MPI have initialized PMIx; the last of them finalizes it, others do nothing."""


def finalize_at_exit(library: str) -> bool:
    """Have MPI finalized at the very end of Python, where mpi4py would do it, but in this process alone.

    Python is no longer there then, so it is native code: ``if (getpid() == this one) MPI_Finalize()``, unless the user
    has done so.

    Args:
        library: the path of one that is linked to MPI's.

    Returns:
        whether that can be.
    """
    from llvmlite import ir  # only where there is an MPI to end

    from scaffe.machine_code import machine_code

    linked = ctypes.CDLL(library)
    if not hasattr(linked, "MPI_Finalize"):
        return False
    number, place = ir.IntType(32), ir.IntType(64)
    module = ir.Module("ending")
    build = ir.IRBuilder(ir.Function(module, ir.FunctionType(ir.VoidType(), []), "at_exit").append_basic_block())

    def call(function: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(number, [each.type for each in arguments]).as_pointer()
        return build.call(build.inttoptr(place(ctypes.cast(function, ctypes.c_void_p).value), kind), arguments)

    with build.if_then(build.icmp_unsigned("==", call(ctypes.CDLL(None).getpid), number(os.getpid()))):
        is_finalized = build.alloca(number)
        call(linked.MPI_Finalized, is_finalized)
        with build.if_then(build.icmp_unsigned("==", build.load(is_finalized), number(0))):
            call(linked.MPI_Finalize)
    build.ret_void()
    return bool(ctypes.pythonapi.Py_AtExit(ctypes.c_void_p(machine_code(module, "at_exit"))) == 0)


class Ending:
    """What this process does when it ends, where ranks may be lost.

    Attributes:
        is_spawned: whether a rank of the job has started this process; the launcher takes it for a failure, and says
            so in its exit code, when such a one ends without a word.
    """

    def __init__(self) -> None:
        self._last: Any = None
        self._process = os.getpid()
        self.is_spawned = False

    def install(self) -> None:
        """MPI has been started: from now on this object ends it."""
        atexit.register(self._leave)

    def without(self, comm: Any) -> None:
        """The last thing that the ranks of mpi4py's `comm` do together is to meet; they do not finalize MPI."""
        self._last = comm

    def first(self, comm: Any) -> None:
        """As `without`, where nothing has been said yet.

        A rank that leaves is then as good as lost to one that has just found a loss, which would wait for it otherwise.
        """
        self._last = self._last or comm

    def needs(self, comm: Any) -> bool:
        """Whether ranks are to meet on mpi4py's `comm` at the end."""
        return self._last is comm

    def _leave(self) -> None:
        from mpi4py import MPI

        if MPI.Is_finalized() or os.getpid() != self._process:
            return
        if self._last is None:
            MPI.Finalize()
            return
        if self.is_spawned:  # the launcher may have gone ahead, and answers nobody then
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LATEST_SECONDS)
        with suppress(MPI.Exception):  # another one is lost: who is left ends by itself
            self._last.Barrier()
        if self.is_spawned:
            self.leave_spawned()

    def leave_spawned(self) -> NoReturn:
        """End this process, which has been spawned, with exit code 0.

        MPI_Finalize would wait for ranks that leave without it. The launcher is content with PMIx_Finalize, which it
        calls: that tells the process's own daemon, and waits for nobody else.
        """
        for line in Path("/proc/self/maps").read_text().splitlines():
            if "libpmix.so" in line:
                library = ctypes.CDLL(line.split(maxsplit=5)[5])
                for _ in range(PMIX_USERS):
                    library.PMIx_Finalize(None, 0)
                break
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(0)


ENDING = Ending()
