"""Whether a disk has written what the system was to write later of a file that is mapped."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import weakref
from typing import Any

WAIT_BEFORE = 1  # SYNC_FILE_RANGE_WAIT_BEFORE: wait for what is being written, begin nothing, and say what went wrong
BEYOND = 1 << 60  # bytes: no file has any there, so that there is nothing to wait for
UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE)
_sync_file_range: Any = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


class WriteBack:
    """Watches one file. The system says only once, to each who had the file open then, that writing has failed.

    Args:
        descriptor: of the file, opened before anything was written; it is this object's, which closes it.
        folder: of the file.
        what: lies in it.
    """

    def __init__(self, descriptor: int, folder: str, what: str) -> None:
        self._descriptor, self._place, self._fault = descriptor, f"folder {folder}: {what}", ""
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, descriptor)

    def fault(self) -> str:
        """What went wrong so far, in one line; empty: nothing. Any thread; it takes microseconds.

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
    """Raise OSError if writing a file has failed since this was last asked. Where the system cannot say that alone,
    everything is written first."""
    if _sync_file_range is not None and not _sync_file_range(descriptor, BEYOND, 1, WAIT_BEFORE):
        return
    code = ctypes.get_errno() if _sync_file_range is not None else errno.ENOSYS
    if code not in UNKNOWN:
        raise OSError(code, os.strerror(code))
    os.fdatasync(descriptor)
