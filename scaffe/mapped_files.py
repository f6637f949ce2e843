"""Mapped files: what happens if a disk does not give a page back, or has not written one."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import threading
import weakref
from functools import cache
from pathlib import Path
from signal import SIGBUS
from typing import Any, BinaryIO

import numpy as np
from llvmlite import ir

from scaffe import forking
from scaffe.machine_code import machine_code

MOST = 256  # pieces of memory watched at once
START, END, LINE, LENGTH = range(4)  # a row: addresses, and the line's length in bytes; END 0: it watches nothing
ADDRESS_AT = 16  # bytes from the start of siginfo_t to si_addr, on 64-bit Linux
ACTION_BYTES = 256  # at least those of a struct sigaction, whose first eight are the handler's address
FLAGS_AT = 136  # sa_flags in it: behind a mask of 128 bytes
SA_SIGINFO, SA_ONSTACK = 4, 0x08000000
STANDARD_ERROR, STATUS = 2, 1

_table = np.zeros((MOST, 4), np.int64)
_before = ctypes.create_string_buffer(ACTION_BYTES)  # the action that was there
_lock = forking.Lock()
_libc = ctypes.CDLL(None, use_errno=True)


def mapped_input(file: BinaryIO, where: str | Path) -> np.ndarray:
    """A file that is mapped for reading, uint8, and watched; ``where`` is its name in an error line."""
    memory = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    watch(memory, str(where))
    return memory


def watch(memory: np.ndarray, where: str, rank: int = -1) -> None:
    """Have the process end with an error line if a page of a mapped file is lost, for as long as its memory is used.

    Only on 64-bit Linux, and for MOST pieces of memory at once; else the process ends by SIGBUS without a line.

    Args:
        memory: the array that all views of the memory are made of, contiguous.
        where: the file, or its folder.
        rank: whose line it is; below 0 if it is the only one.
    """
    who = f"rank {rank}: " if rank >= 0 else "scaffe: "
    line = f"{who}{where}: a mapped page could not be read (SIGBUS): the disk failed, or the file was shortened\n"
    text = np.frombuffer(line.encode(errors="replace"), np.uint8)
    with _lock:
        free = np.flatnonzero(_table[:, END] == 0)
        if not free.size or not _installed():
            return
        row, start = _table[free[0]], memory.ctypes.data
        row[[START, LINE, LENGTH]] = start, text.ctypes.data, text.size
        row[END] = start + memory.nbytes
    weakref.finalize(memory, _leave, row, text).atexit = False


def _leave(row: np.ndarray, text: np.ndarray) -> None:
    """Stop watching a row's memory. Its line had to live until now."""
    row[END] = 0


@cache
def _installed() -> bool:
    """Install the handler. Returns whether that is possible."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    action = ctypes.create_string_buffer(ACTION_BYTES)
    ctypes.c_void_p.from_buffer(action).value = machine_code(_module(), "on_lost_page")
    ctypes.c_int.from_buffer(action, FLAGS_AT).value = SA_SIGINFO | SA_ONSTACK
    return not _libc.sigaction(int(SIGBUS), action, _before)


def _module() -> ir.Module:
    """void on_lost_page(int, siginfo_t *, void *): go through the table; the first row that has the address ends us."""
    place, number = ir.IntType(64), ir.IntType(32)
    module = ir.Module("lost_pages")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [number, place, place]), "on_lost_page")
    first, looks, found, passes, none = (function.append_basic_block(name) for name in (
        "first", "looks", "found", "passes", "none"))
    build = ir.IRBuilder(first)

    def load(at: Any) -> Any:
        return build.load(build.inttoptr(at, place.as_pointer()))

    def call(name: str, result: ir.Type, *arguments: Any) -> None:
        kind = ir.FunctionType(result, [each.type for each in arguments]).as_pointer()
        address = ctypes.cast(getattr(_libc, name), ctypes.c_void_p).value
        build.call(build.inttoptr(place(address), kind), arguments)

    address = load(build.add(function.args[1], place(ADDRESS_AT)))
    build.branch(looks)
    build.position_at_end(looks)
    row = build.phi(place)
    within = build.and_(build.icmp_unsigned(">=", address, load(build.add(row, place(8 * START)))),
                        build.icmp_unsigned("<", address, load(build.add(row, place(8 * END)))))
    build.cbranch(within, found, passes)
    build.position_at_end(found)
    call("write", place, number(STANDARD_ERROR), load(build.add(row, place(8 * LINE))),
         load(build.add(row, place(8 * LENGTH))))
    call("_exit", ir.VoidType(), number(STATUS))
    build.unreachable()
    build.position_at_end(passes)
    after = build.add(row, place(_table.strides[0]))
    row.add_incoming(place(_table.ctypes.data), first)
    row.add_incoming(after, passes)
    build.cbranch(build.icmp_unsigned("<", after, place(_table.ctypes.data + _table.nbytes)), looks, none)
    build.position_at_end(none)
    call("sigaction", number, number(int(SIGBUS)), place(ctypes.addressof(_before)), place(0))
    build.ret_void()
    return module


WAIT_BEFORE = 1  # SYNC_FILE_RANGE_WAIT_BEFORE: wait for what is being written, begin nothing, and say what went wrong
BEYOND = 1 << 60  # bytes: no file has any there, so that there is nothing to wait for
UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE)
_sync_file_range: Any = getattr(_libc, "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


class WriteBack:
    """Watches one file for failed writes. The system reports a failed write only once, to each who had the file open
    then.

    Args:
        descriptor: of the file, opened before anything was written. This object owns it, and closes it.
        folder: of the file.
        what: lies in it.
    """

    def __init__(self, descriptor: int, folder: str, what: str) -> None:
        self._descriptor, self._place, self._fault = descriptor, f"folder {folder}: {what}", ""
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, descriptor)

    def fault(self) -> str:
        """What went wrong so far, in one line; empty if nothing did. Any thread may call it; it takes microseconds.

        A page can be wrong in memory only after its writing has failed: what was read before is right if there is no
        fault now.
        """
        with self._lock:
            try:
                if not self._fault:
                    ask(self._descriptor)
            except OSError as error:
                self._fault = f"{self._place} were not written: {error.strerror}"
            return self._fault


def ask(descriptor: int) -> None:
    """Raise OSError if writing a file has failed since this was last asked. If the system cannot say that alone,
    everything is written first."""
    if _sync_file_range is not None and not _sync_file_range(descriptor, BEYOND, 1, WAIT_BEFORE):
        return
    code = ctypes.get_errno() if _sync_file_range is not None else errno.ENOSYS
    if code not in UNKNOWN:
        raise OSError(code, os.strerror(code))
    os.fdatasync(descriptor)
