"""What the stand-in recorded: each call with its thread, that thread's device, and whether it was capturing."""

from __future__ import annotations

import ctypes
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np

QUESTION, WORK, ALLOCATION, FROM_HOST, LAUNCH = (ord(letter) for letter in "qwahk")
"""Kinds of calls, as in standin.h. All but questions need a context."""
CALL = np.dtype([("name", "S40"), ("detail", "S72"), ("thread", "<i8"), ("device", "<i4"), ("kind", "<i4"),
                 ("capturing", "<i4"), ("refused", "<i4")])
INNERMOST = 12


class Record:
    """One process' record.

    Args:
        library: libstandin.so.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._library.standin_note.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p]
        self._library.standin_note.restype = ctypes.c_int64
        self._library.standin_refuse.argtypes = [ctypes.c_int64, ctypes.c_int]
        self._library.standin_owner.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._library.standin_calls.restype = ctypes.c_void_p
        self._places: dict[int, str] = {}
        self._told = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._keep_place)  # kept: C has its address alone
        self._library.standin_watch(self._told)

    def note(self, name: str, kind: int, stream: int = 0) -> int:
        """Add a call that Python makes in a library's place; its number."""
        return int(self._library.standin_note(name.encode(), kind, stream, b""))

    def refused(self, call: int, why: str) -> RuntimeError:
        """The error of a call that CUDA would refuse."""
        self._library.standin_refuse(call, 1)
        return RuntimeError(why)

    def device(self) -> int:
        """This thread's; 0 where it has chosen none."""
        return int(self._library.standin_device())

    def owner(self, address: int, n_bytes: int) -> int:
        """The device whose memory this is; -1: none's."""
        return int(self._library.standin_owner(address, n_bytes))

    def calls(self) -> np.ndarray:
        """A copy of all calls so far, of dtype CALL."""
        n_calls = ctypes.c_int64()
        at = self._library.standin_calls(ctypes.byref(n_calls))
        return np.frombuffer(ctypes.string_at(at, n_calls.value * CALL.itemsize), CALL) if at else np.empty(0, CALL)

    def _keep_place(self, call: int) -> None:
        where = traceback.extract_stack()[:-1][-INNERMOST:]
        lines = (f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in where)
        self._places[call] = f"{threading.current_thread().name}: {' > '.join(lines)}"

    def told(self, call: int, row: Any) -> str:
        """One line: a call, and where it came from."""
        return f"{row['name'].decode()} ({row['detail'].decode()}) in {self._places.get(call, 'an unknown place')}"

    def faults(self) -> dict[str, list[str]]:
        """The calls that break a rule, by rule."""
        calls = self.calls()
        works = calls["kind"] != QUESTION
        captures = calls["capturing"] != 0
        rules = {"on a thread without a device": works & (calls["device"] < 0),
                 "allocates while capturing": captures & (calls["kind"] == ALLOCATION),
                 "copies from the host while capturing": captures & (calls["kind"] == FROM_HOST),
                 "CUDA refuses it": calls["refused"] != 0}
        return {rule: [self.told(int(at), calls[at]) for at in np.flatnonzero(found)] for rule, found in rules.items()}

    def contexts(self) -> set[int]:
        """The devices on which calls have made a context."""
        calls = self.calls()
        return set(np.maximum(calls["device"][calls["kind"] != QUESTION], 0).tolist())
