"""Messages and transfers of rows between the processes of several nodes, over MPI's point-to-point messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count

import numpy as np

from scaffe.collectives.runtime.point_to_point import ANY, PendingMessage, PointToPoint
from scaffe.collectives.server.nodes.transfers import CHUNK_BYTES, Incoming, Outgoing
from scaffe.collectives.server.protocol.messages import N_NUMBERS

CONTROL_TAG = 0
FIRST_TAG, N_TAGS = 1, 16_384  # transfers to one peer take tags in turn
N_CONTROLS = 16  # receives that wait for messages without rows
WINDOW_BYTES = 16 * CHUNK_BYTES  # under way to one peer: what a message without rows may have to wait for
N_AHEAD = 8  # chunks of a transfer that can be received at once


class _Lane:
    """The transfers of this process to one peer, and which of them sends its next chunk.

    The chunks of its transfers alternate: the oldest transfer's, then that of the transfer with least left to send. So
    big ones end in the order they were begun, and small ones do not wait for them. Those that yield wait for the rest.
    """

    def __init__(self) -> None:
        self.transfers: dict[Outgoing, int] = {}  # oldest first, with their tags
        self.n_bytes = 0  # under way
        self.tags = count()
        self._n_chunks = 0

    def pick(self) -> Outgoing | None:
        """The transfer whose chunk goes next, if any."""
        unsent = [transfer for transfer in self.transfers if transfer.n_left]
        waiting = [transfer for transfer in unsent if not transfer.yields] or unsent
        if not waiting:
            return None
        self._n_chunks += 1
        return waiting[0] if self._n_chunks % 2 else min(waiting, key=lambda transfer: transfer.n_left)


class Links:
    """This process's messages to and from other nodes; for one thread. ``came``: called with a message's numbers, int64
    (7,), the tag of the transfer that follows it, and the sending rank."""

    def __init__(self, messages: PointToPoint, came: Callable[[np.ndarray, int, int], None]) -> None:
        self._messages, self._came = messages, came
        self._lanes: dict[int, _Lane] = {}
        self._under_way: dict[PendingMessage, Callable[[], None]] = {}
        self._n_transfers = 0
        self._controls = deque[tuple[PendingMessage, np.ndarray]]()  # in the order posted
        self._done = set[PendingMessage]()  # of these, those found done
        for _ in range(N_CONTROLS):
            self._expect(np.empty(N_NUMBERS + 1, np.int64))

    @property
    def is_idle(self) -> bool:
        """Whether nothing but messages of others is waited for."""
        return not self._n_transfers and len(self._under_way) == N_CONTROLS

    @property
    def is_busy(self) -> bool:
        return self._n_transfers > 0

    def tell(self, peer: int, numbers: np.ndarray, tag: int = 0) -> None:
        """Send a message without rows, int64 (7,); messages to one peer arrive in order."""
        self._under_way[self._messages.isend(np.append(numbers, tag), peer, CONTROL_TAG)] = nothing

    def send(self, peer: int, numbers: np.ndarray, transfer: Outgoing) -> None:
        """Send a message and the rows that it announces."""
        lane = self._lanes.setdefault(peer, _Lane())
        tag = FIRST_TAG + next(lane.tags) % N_TAGS
        self.tell(peer, numbers, tag)
        self._n_transfers += 1
        lane.transfers[transfer] = tag
        self._fill(peer, lane)
        self._end_outgoing(lane, transfer)

    def receive(self, peer: int, tag: int, transfer: Incoming) -> None:
        """Receive the rows that a message with this tag has announced."""
        self._n_transfers += 1
        for _ in range(N_AHEAD):
            self._receive_chunk(peer, tag, transfer)
        self._end_incoming(transfer)

    def poll(self) -> int:
        """Go on with what has arrived and left, until there is nothing. Returns how many messages were done."""
        n_done = 0
        while True:  # MPI takes a little from each connection when it is asked
            pending = list(self._under_way)
            found = [pending[index] for index in self._messages.test_some(pending)]
            for message in found:
                self._under_way.pop(message)()
            n_done += len(found)
            if not found:
                return n_done

    def close(self) -> None:
        for message in self._under_way:
            message.cancel()
        self._under_way.clear()

    def _expect(self, numbers: np.ndarray) -> None:
        message = self._messages.irecv(numbers, ANY, CONTROL_TAG)
        self._controls.append((message, numbers))
        self._under_way[message] = lambda: self._control(message)

    def _control(self, message: PendingMessage) -> None:
        """Takes the message of a receive that is done, after those of receives posted earlier.

        Messages of a peer go to receives in the order posted; where another thread calls MPI, a later receive may be
        found done first.
        """
        self._done.add(message)
        while (first := self._controls[0])[0] in self._done:
            self._controls.popleft()
            self._done.remove(first[0])
            envelope, copy = first[0].test(), first[1].copy()
            self._expect(first[1])
            if envelope is not None:
                self._came(copy[:N_NUMBERS], int(copy[N_NUMBERS]), envelope.source)

    def _fill(self, peer: int, lane: _Lane) -> None:
        while lane.n_bytes < WINDOW_BYTES and (transfer := lane.pick()) is not None:
            self._send_chunk(peer, lane, transfer)

    def _send_chunk(self, peer: int, lane: _Lane, transfer: Outgoing) -> None:
        chunk = transfer.next()
        lane.n_bytes += chunk.nbytes

        def sent() -> None:
            lane.n_bytes -= chunk.nbytes
            transfer.finish(chunk)
            self._fill(peer, lane)
            self._end_outgoing(lane, transfer)

        self._under_way[self._messages.isend(chunk, peer, lane.transfers[transfer])] = sent

    def _end_outgoing(self, lane: _Lane, transfer: Outgoing) -> None:
        if transfer.is_done:
            del lane.transfers[transfer]
            self._n_transfers -= 1
            transfer.done()

    def _receive_chunk(self, peer: int, tag: int, transfer: Incoming) -> None:
        if not transfer.n_left:
            return
        chunk = transfer.next()

        def filled() -> None:
            transfer.finish(chunk)
            self._receive_chunk(peer, tag, transfer)
            self._end_incoming(transfer)

        self._under_way[self._messages.irecv(chunk, peer, tag)] = filled

    def _end_incoming(self, transfer: Incoming) -> None:
        if transfer.is_done:
            self._n_transfers -= 1
            transfer.done()


def nothing() -> None:
    """What follows a message that nobody waits for."""


SHORTEST_SECONDS, LONGEST_SECONDS = 50e-6, 2e-3
SHARE_OF_TIME = 1 / 16  # of the time since the last event, while no rows are under way
CHUNKS_A_POLL = 3  # a small part of a window: links stay busy meanwhile


class PollingInterval:
    """The interval between polls.

    While rows are under way it is the time of some chunks, so that polling costs little at any network speed; otherwise
    it is a share of the time since the last message.
    """

    def __init__(self) -> None:
        self._busy, self._idle_since = SHORTEST_SECONDS, 0.0

    def interval(self, n_done: int, is_busy: bool, now: float) -> float:
        """The time to sleep before the next poll. ``n_done``: messages that were found done since the last sleep;
        ``now``: in seconds."""
        if n_done:
            self._idle_since = now
        if not is_busy:
            self._busy = SHORTEST_SECONDS
            return _within((now - self._idle_since) * SHARE_OF_TIME)
        self._busy = _within(self._busy * min(max(CHUNKS_A_POLL / max(n_done, 1), 0.5), 1.5))
        return self._busy


def _within(seconds: float) -> float:
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)
