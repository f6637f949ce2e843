"""Runs the executions of all ranks in one process, over messages that behave as badly as MPI allows.

It runs `engine.Execution` itself: its programs, scratch slots and persistent messages. A receive's memory is
filled with garbage when it starts. A message may read the sender's memory at any time from its start until the sender
has waited for it, and write the receiver's memory as late. Messages of a pair keep their order. A rank may be in its
next call while others are still in this one.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np

from scaffe.collectives.planning.plan import Plan
from scaffe.collectives.runtime.engine import Execution
from tests.collectives.model.simulator import Operation, SimulationError


class Timing(Enum):
    """When messages move."""

    EARLY = "as soon as they are started, copied away from the sender's memory as small MPI messages are"
    LATE = "only when no rank can go on: both sides' memory is in use as long as can be"
    ANY = "at random"


class _Blocked(Exception):  # noqa: N818 - not an error: the rank waits
    """Raised by a wait that cannot return yet."""


class _Message:
    """One persistent message, seen by its sender or its receiver."""

    def __init__(self, network: _Network, pair: tuple[int, int], part: np.ndarray, is_send: bool) -> None:
        self.part, self.is_send = part, is_send
        self.owner = pair[0] if is_send else pair[1]
        self._network, self._pair = network, pair
        self._is_active = self.is_done = False

    def Start(self) -> None:
        if self._is_active:
            raise SimulationError(f"rank {self.owner}: a message between {self._pair} is started before it is done")
        self._is_active, self.is_done = True, False
        self._network.start(self._pair, self)

    def Wait(self) -> None:
        """See transport.Message. Raises _Blocked where it would wait."""
        if not self._is_active:
            raise SimulationError(f"rank {self.owner}: a message between {self._pair} is waited for but not started")
        if not self.is_done:
            raise _Blocked
        self._is_active = False

    def Free(self) -> None:
        """See transport.Message."""


@dataclass(slots=True)
class _Transfer:
    """What moves when both sides of a message are there; `values` is None until the sender's memory was read."""

    send: _Message
    receive: _Message
    values: np.ndarray | None


class _Network:
    """Messages on their way: per pair of ranks those that wait for the other side, and all that have met."""

    def __init__(self, timing: Timing, chance: random.Random) -> None:
        self.met: list[_Transfer] = []
        self.woken: list[int] = []
        self.sends: dict[tuple[int, int], deque[tuple[_Message, np.ndarray | None]]] = defaultdict(deque)
        self.receives: dict[tuple[int, int], deque[_Message]] = defaultdict(deque)
        self._timing, self._chance = timing, chance

    def start(self, pair: tuple[int, int], message: _Message) -> None:
        """A side of a message is there; it meets the oldest of the other side."""
        if message.is_send:
            self.sends[pair].append((message, self._read(message) if self._timing is Timing.EARLY else None))
        else:
            message.part.view(np.uint8)[...] = self._chance.randrange(256)
            self.receives[pair].append(message)
        if self.sends[pair] and self.receives[pair]:
            (send, values), receive = self.sends[pair].popleft(), self.receives[pair].popleft()
            self._meet(pair, _Transfer(send, receive, values))

    def left_over(self) -> bool:
        """Whether a message waits for its other side."""
        return any(self.sends.values()) or any(self.receives.values())

    def _meet(self, pair: tuple[int, int], transfer: _Transfer) -> None:
        sent, expected = transfer.send.part.size, transfer.receive.part.size
        if sent != expected:
            raise SimulationError(f"rank {pair[1]} expects {expected} elements, rank {pair[0]} sends {sent}")
        self.met.append(transfer)
        if self._timing is Timing.EARLY:
            self.move()

    def move(self) -> None:
        """One transfer reads, or having read writes."""
        index = self._chance.randrange(len(self.met))
        transfer = self.met[index]
        if transfer.values is None:
            transfer.values = self._read(transfer.send)
            return
        self.met[index] = self.met[-1]
        self.met.pop()
        transfer.receive.part[...] = transfer.values
        self._done(transfer.receive)

    def _read(self, send: _Message) -> np.ndarray:
        self._done(send)
        return send.part.copy()

    def _done(self, message: _Message) -> None:
        message.is_done = True
        self.woken.append(message.owner)


class _Transport:
    """One rank's messages over the network (see transport.Transport)."""

    def __init__(self, network: _Network, rank: int, operation: Operation) -> None:
        self.tag = 0
        self._network, self._rank, self._operation = network, rank, operation
        self._slots: dict[int, np.ndarray] = {}

    def address(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def view(self, array: np.ndarray) -> np.ndarray:
        return array

    def scratch(self, slot: int, n_elems: int, like: np.ndarray) -> np.ndarray:
        return self._slots.setdefault(slot, np.empty(n_elems, like.dtype))

    def sender(self, part: np.ndarray, peer: int) -> _Message:
        return _Message(self._network, (self._rank, peer), part, is_send=True)

    def receiver(self, part: np.ndarray, peer: int) -> _Message:
        return _Message(self._network, (peer, self._rank), part, is_send=False)

    def combiner(self, own: np.ndarray, received: np.ndarray, op: str) -> Callable[[], object]:
        return partial(self._combine, own, received)

    def _combine(self, own: np.ndarray, received: np.ndarray) -> None:
        own[...] = self._operation(own, received)


class Rehearsal:
    """The executors of all ranks of one collective, each on its own buffer."""

    def __init__(self, plans: Sequence[Plan], buffers: Sequence[np.ndarray], timing: Timing, seed: int = 0,
                 operation: Operation = np.add) -> None:
        """Args:
            buffers: per rank a flat array of n_elems, changed in place.
            timing: when messages move.
            seed: of everything random.
            operation: op(own, received) of RecvReduce.
        """
        self._chance = random.Random(seed)
        self._timing = timing
        self._network = _Network(timing, self._chance)
        self._calls = [
            Execution(plan, buffer, "sum", _Transport(self._network, plan.rank, operation)).calls
            for plan, buffer in zip(plans, buffers, strict=True)
        ]

    def run(self, begin: Sequence[Callable[[int], None]], end: Callable[[int, int], None]) -> None:
        """Makes len(begin) calls in a row.

        Args:
            begin: begin[n](rank) is called just before the rank begins call n.
            end: end(n, rank) is called when the rank has completed call n.

        Raises:
            SimulationError: on a deadlock, a message of another length than expected, one that is never received, or
                one that is started while still under way.
        """
        ranks = [self._rank(rank, begin, end) for rank in range(len(self._calls))]
        runnable = list(range(len(ranks)))
        n_running = len(ranks)
        while n_running:
            if self._network.met and (not runnable or self._timing is Timing.ANY and self._chance.random() < 0.5):
                self._network.move()
            elif runnable:
                index = self._chance.randrange(len(runnable))
                state = next(ranks[runnable[index]])
                if state:
                    runnable[index] = runnable[-1]
                    runnable.pop()
                n_running -= state == "done"
            else:
                raise SimulationError(f"deadlock: {n_running} of {len(ranks)} ranks wait")
            runnable += [rank for rank in dict.fromkeys(self._network.woken) if rank not in runnable]
            self._network.woken.clear()
        if self._network.left_over():
            raise SimulationError("messages are left that nobody receives or sends")

    def _rank(self, rank: int, begin: Sequence[Callable[[int], None]],
              end: Callable[[int, int], None]) -> Iterator[str]:
        """Yields after every step: '' to go on, 'blocked' where it must wait, 'done' at the end, then 'idle'."""
        for number, prepare in enumerate(begin):
            prepare(rank)
            for call in self._calls[rank]:
                while True:
                    try:
                        call()
                    except _Blocked:
                        yield "blocked"
                    else:
                        break
                yield ""
            end(number, rank)
        yield "done"
        while True:
            yield "idle"
