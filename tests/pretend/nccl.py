"""cupy.cuda.nccl over sockets: what its calls mean, in the order of the stream that they are given.

As NCCL it takes addresses, counts and its own numbers for types and operations, knows nothing of MPI, starts when all
ranks have come, and its kernels wait without end for a rank that has died, until they are aborted. ``install`` puts it
into the pretend module.
"""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from tests.pretend.contexts import touch
from tests.pretend.queue import Node, stream_at

NAP_SECONDS = 1e-3
UNIQUE_ID_BYTES = 128
TYPES = {"INT32": (2, np.int32), "INT64": (4, np.int64), "FLOAT16": (6, np.float16), "FLOAT32": (7, np.float32),
         "FLOAT64": (8, np.float64), "BFLOAT16": (9, ml_dtypes.bfloat16)}
OPS = {"SUM": (0, np.add), "PROD": (1, np.multiply), "MAX": (2, np.maximum), "MIN": (3, np.minimum)}
DTYPES = {number: np.dtype(dtype) for number, dtype in TYPES.values()}
UFUNCS = dict(OPS.values())


made: list[str] = []
"""The threads that have made communicators, one for each."""
queued_by: set[str] = set()
"""The threads that have queued calls."""


class Hub:
    """Where the ranks of a communicator meet: gives all rows to all once each rank's has come."""

    def __init__(self, identity: bytes) -> None:
        self._listener = Listener(_address(identity), "AF_UNIX", backlog=64)
        self._lock, self._ranks = threading.Lock(), dict[int, Connection]()
        self._rows: dict[int, dict[int, bytes]] = defaultdict(dict)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        n_ranks = sys.maxsize
        while len(self._ranks) < n_ranks:
            connection = self._listener.accept()
            rank, n_ranks = connection.recv()
            self._ranks[rank] = connection
        for connection in self._ranks.values():
            self._send(connection, "all are here")
        for rank in self._ranks:
            threading.Thread(target=self._serve, args=(rank,), daemon=True).start()

    def _serve(self, rank: int) -> None:
        with suppress(EOFError, OSError):  # a rank that has died is missed by nobody but those that wait for its rows
            while True:
                number, row = self._ranks[rank].recv()
                with self._lock:
                    rows = self._rows[number]
                    rows[rank] = row
                    if len(rows) == len(self._ranks):
                        for connection in self._ranks.values():
                            self._send(connection, [rows[each] for each in sorted(rows)])
                        del self._rows[number]

    def _send(self, connection: Connection, what: Any) -> None:
        with suppress(OSError):
            connection.send(what)


def _address(identity: bytes) -> str:
    return f"\0pretend-nccl-{identity.hex()[:64]}"


_hubs: list[Hub] = []


def get_unique_id() -> bytes:
    """What all ranks of a communicator must come with."""
    identity = np.random.default_rng().bytes(UNIQUE_ID_BYTES)
    _hubs.append(Hub(identity))
    return identity


def group_start() -> None:
    """Calls until ``groupEnd`` are one."""


class NcclCommunicator:
    """Ranks that came with the same id."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        touch()
        if len(commId) != UNIQUE_ID_BYTES:
            raise ValueError(f"commId length {len(commId)} != {UNIQUE_ID_BYTES}.")
        made.append(threading.current_thread().name)
        self._rank, self._n_ranks, self._n_calls, self._is_aborted = rank, ndev, 0, False
        self._connection = Client(_address(commId), "AF_UNIX")
        self._connection.send((rank, ndev))
        self._connection.recv()
        self._progress = queue.SimpleQueue[Node]()
        threading.Thread(target=self._run, name="pretend-device", daemon=True).start()

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        """The reduction of all ranks' buffers in root's."""
        def write(rows: np.ndarray) -> None:
            if self._rank == root:
                _array(recvbuf, count, datatype)[:] = UFUNCS[op].reduce(rows)
        self._queue(write, sendbuf, count, datatype, stream)

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        """The reduction of all ranks' buffers in all."""
        def write(rows: np.ndarray) -> None:
            _array(recvbuf, count, datatype)[:] = UFUNCS[op].reduce(rows)
        self._queue(write, sendbuf, count, datatype, stream)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """Root's buffer in all."""
        def write(rows: np.ndarray) -> None:
            _array(recvbuff, count, datatype)[:] = rows[root]
        self._queue(write, sendbuff, count, datatype, stream)

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:
        """The reduction of all ranks' buffers, each rank its part of it."""
        def write(rows: np.ndarray) -> None:
            part = slice(self._rank * recvcount, (self._rank + 1) * recvcount)
            _array(recvbuf, recvcount, datatype)[:] = UFUNCS[op].reduce(rows[:, part])
        self._queue(write, sendbuf, recvcount * self._n_ranks, datatype, stream)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        """All ranks' buffers, one behind another, in all."""
        def write(rows: np.ndarray) -> None:
            _array(recvbuf, count * self._n_ranks, datatype)[:] = rows.reshape(-1)
        self._queue(write, sendbuf, count, datatype, stream)

    def check_async_error(self) -> None:
        """Nothing is found wrong here: who waits for a dead rank is not told."""

    def destroy(self) -> None:
        """All ranks have done with it."""

    def abort(self) -> None:
        """What is queued ends, and writes nothing."""
        self._is_aborted = True

    def _queue(self, write: Callable[[np.ndarray], None], address: int, count: int, datatype: int, stream: int) -> None:
        queued_by.add(threading.current_thread().name)
        number, found, is_sent = self._n_calls, list[bytes](), False
        self._n_calls += 1

        def has_come() -> bool:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                with suppress(OSError):
                    self._connection.send((number, _array(address, count, datatype).tobytes()))
            with suppress(EOFError, OSError):
                if not found and not self._is_aborted and self._connection.poll():
                    found.extend(self._connection.recv())
            return bool(found) or self._is_aborted

        def ends() -> None:
            if found:
                write(np.array([np.frombuffer(row, DTYPES[datatype]) for row in found]))
        self._progress.put(stream_at(stream).add_gated(ends, has_come))

    def _run(self) -> None:
        """The device comes to each call some time after it was queued, whether this host waits for it or not: another
        rank's may."""
        while True:
            node = self._progress.get()
            while not node.done and not self._is_aborted:
                time.sleep(NAP_SECONDS)
                node.run(waits=False)


def _array(address: int, count: int, datatype: int) -> np.ndarray:
    dtype = DTYPES[datatype]
    return np.frombuffer((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address), dtype)


def install() -> None:
    """Be ``cupy.cuda.nccl`` of the pretend module that is ``cupy`` now."""
    module = ModuleType("cupy.cuda.nccl")
    module.__dict__.update({"available": True, "get_unique_id": get_unique_id, "NcclCommunicator": NcclCommunicator,
                            "groupStart": group_start, "groupEnd": group_start})
    module.__dict__.update({f"NCCL_{name}": number for name, (number, _) in (TYPES | OPS).items()})
    sys.modules["cupy.cuda.nccl"] = module
    sys.modules["cupy.cuda"].nccl = module  # type: ignore[attr-defined]
