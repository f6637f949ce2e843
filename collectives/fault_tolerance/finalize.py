"""Finalizes MPI at the end of a rank, in place of mpi4py, whose own finalizing is switched off.

After a loss ranks meet in a barrier and end without MPI_Finalize, in which Open MPI may wait for ever. A forked child
does not finalize MPI: MPI_Finalize would wait there for ranks that do not come (Open MPI 5.0).
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

EXIT_SECONDS = 20
PMIX_USERS = 4
"""At most so many parts of Open MPI have initialized PMIx; the last of them finalizes it, others do nothing."""


def finalize_at_exit(library: str) -> bool:
    """Registers a call of MPI_Finalize at the very end of Python, where mpi4py makes it, but for this process alone.

    Python cannot run code there any more, so it is native code: ``if (getpid() == this one) MPI_Finalize()``, unless
    the user has done so.

    Args:
        library: path of a library that is linked to MPI's.

    Returns:
        Whether it has been registered.
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


class FinalizeAfterLoss:
    """Ends MPI in this process where ranks may be lost: by MPI_Finalize, or by a barrier of the ranks that are left.

    Attributes:
        is_spawned: whether a rank of the job has started this process. The launcher counts a spawned process that ends
            without PMIx_Finalize as a failure, in its exit code.
    """

    def __init__(self) -> None:
        self._last: Any = None
        self._process = os.getpid()
        self.is_spawned = False

    def install(self) -> None:
        atexit.register(self._finalize)

    def meet_instead(self, comm: Any) -> None:
        """Has the ranks of mpi4py's `comm` meet at the end, and not finalize MPI."""
        self._last = comm

    def meet_by_default(self, comm: Any) -> None:
        """As `meet_instead`, unless another communicator has been named.

        A rank that has just found a loss thus counts one that ends as lost, instead of waiting for it.
        """
        self._last = self._last or comm

    def meets_on(self, comm: Any) -> bool:
        """Whether ranks meet on mpi4py's `comm` at the end: then it must not be freed."""
        return self._last is comm

    def _finalize(self) -> None:
        from mpi4py import MPI

        if MPI.Is_finalized() or os.getpid() != self._process:
            return
        if self._last is None:
            MPI.Finalize()
            return
        if self.is_spawned:  # the launcher may have ended, and answers nobody then
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(EXIT_SECONDS)
        with suppress(MPI.Exception):  # another one is lost: each rank ends by itself
            self._last.Barrier()
        if self.is_spawned:
            self.exit_spawned()

    def exit_spawned(self) -> NoReturn:
        """Ends this process, which has been spawned, with exit code 0.

        MPI_Finalize would wait for ranks that end without it. The launcher needs PMIx_Finalize only, which tells the
        process's own daemon and waits for nobody else.
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


FINALIZER = FinalizeAfterLoss()
