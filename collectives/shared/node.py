"""The ranks of one node as a group that works on shared memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.datatypes import NAMES, OPS
from scaffe.collectives.shared import kernels, passes, schedule
from scaffe.collectives.shared.window import Windows

LOOK_AROUND = np.array([0, 200_000_000], np.int64)  # seconds, nanoseconds: how often a waiting rank looks for the dead
SPINS = 100  # looks at a word, giving way in between, before sleeping: measured with more ranks than cores
STAGE_BYTES = 512 << 10  # a rank's share of the staging memory: the node's shares stay in the last-level cache


class NodeGroup:
    """Collectives among the ranks of one node. One object a thread: it owns one channel and its staging memory."""

    def __init__(self, node_comm, windows: Windows, deadline: float,
                 waiting: Callable[[], None] = lambda: None) -> None:
        """All ranks of the node call it. `deadline`: seconds after which a missing peer is an error; `waiting()` is
        called now and then while peers are waited for."""
        self._comm = node_comm
        self.rank, self.n_ranks = node_comm.rank, node_comm.size
        self._deadline, self._waiting = deadline, waiting
        self._windows = windows
        self._names = node_comm.allgather((os.getpid(), node_comm.rank))
        self._memory = windows.allocate(passes.channel_bytes(self.n_ranks))
        self._channel = int(windows.place(self._memory).addresses[0])
        self._epoch = 0
        self._stage = windows.allocate(STAGE_BYTES)
        self._stage_place = windows.place(self._stage)
        self._blocks: dict[np.dtype, np.ndarray] = {}

    def run(self, collective: str, array: np.ndarray, op: str = "sum", root: int = 0) -> None:
        """Run one collective on a flat array: in place where all ranks' lie in a window, else through staging memory.

        Raises CommError on every rank when they come with different collectives, lengths, dtypes or places, and
        on the waiting ranks when a peer is dead or late.
        """
        place = self._windows.find(array)
        wanted = (collective, array.size, NAMES[array.dtype], op, root, place and (place.serial, place.offset))
        if place is not None:
            tables = _tables(collective, self.n_ranks, array.size, root, array.itemsize, 0, array.size)
            self._pass(wanted, tables, place.addresses, array.dtype, op)
        else:
            self._staged(wanted, array, op, root)

    def meet(self, wanted: tuple) -> None:
        """Return when all ranks of the node have come. Raises CommError as `run` does; `wanted`: as `run` makes it."""
        nothing = _tables("allreduce", self.n_ranks, 0, 0, 1, 0, 0)
        self._pass(wanted, nothing, self._stage_place.addresses, np.dtype(np.float32), "sum")

    def _staged(self, wanted: tuple, array: np.ndarray, op: str, root: int) -> None:
        slot, place = self._stage.view(array.dtype), self._stage_place
        step = slot.size
        for start in range(0, max(array.size, 1), step):
            end = min(start + step, array.size)
            tables = _tables(wanted[0], self.n_ranks, array.size, root, array.itemsize, start, end)
            for first, last in tables.reads[self.rank]:
                slot[first - start : last - start] = array[first:last]
            self._pass(wanted, tables, place.addresses - start * array.itemsize, array.dtype, op)
            for first, last in tables.writes[self.rank]:
                array[first:last] = slot[first - start : last - start]

    def _pass(self, wanted: tuple, tables: schedule.Tables, addresses: np.ndarray, dtype: np.dtype, op: str) -> None:
        self._epoch = (self._epoch + 1) & 0xFFFFFFFF
        started, arrived = time.monotonic(), False
        while True:
            status = passes.run_pass(
                self._channel, self.rank, self.n_ranks, np.uint32(self._epoch), arrived, _digest(wanted),
                tables.pieces, tables.sources, tables.targets, addresses, self._block(dtype), OPS.index(op),
                SPINS, LOOK_AROUND,
            )  # fmt: skip
            if status == passes.COMPLETE:
                return
            if status == passes.MISMATCHED:
                self._disagree(wanted)
            arrived = True
            self._look_for_the_missing(time.monotonic() - started)

    def _disagree(self, wanted: tuple) -> None:
        everyone = self._comm.allgather(wanted)
        rank = next(rank for rank, other in enumerate(everyone) if other != everyone[0])
        raise CommError(
            f"ranks of one node disagree: rank {self._names[0][1]} has {_text(everyone[0])}, "
            f"rank {self._names[rank][1]} has {_text(everyone[rank])}", everywhere=True,
        )

    def _look_for_the_missing(self, waited: float) -> None:
        self._waiting()
        for rank in passes.missing(self._channel, self.n_ranks, np.uint32(self._epoch)):
            pid, name = self._names[rank]
            if not alive(pid):
                raise CommError(f"rank {self._names[self.rank][1]} waits for rank {name}, whose process {pid} is dead")
            if waited > self._deadline:
                raise CommError(f"rank {self._names[self.rank][1]} waited {waited:.0f} s for rank {name}")

    def _block(self, dtype: np.dtype) -> np.ndarray:
        if dtype not in self._blocks:
            self._blocks[dtype] = kernels.block_for(dtype)
        return self._blocks[dtype]


def _text(wanted: tuple) -> str:
    collective, n_elems, dtype, op, root, place = wanted
    where = f"window {place[0]} at byte {place[1]}" if place else "private memory"
    return f"{collective} of {n_elems} x {dtype} ({op}, root {root}) in {where}"


def alive(pid: int) -> bool:
    """False when process `pid` is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a path object costs more than the question
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@lru_cache(maxsize=4096)
def _digest(wanted: tuple) -> int:
    return int.from_bytes(blake2b(repr(wanted).encode(), digest_size=8).digest(), "little", signed=True)


_tables = lru_cache(maxsize=4096)(schedule.tables)
