"""Transports of device memory: as it is through a CUDA-aware MPI, or staged through pinned host memory.

Plans, executor and sums are those of host memory; see `messages` for how messages follow the device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.kernels import kernels
from scaffe.collectives.cuda.lane import Lane
from scaffe.collectives.cuda.messages import Lineups, Message
from scaffe.collectives.cuda.span import Span
from scaffe.collectives.cuda.staging import Landing, PassedOn, Slot, StagedReceive, StagedSend
from scaffe.collectives.runtime.executor import RECEIVES_AHEAD
from scaffe.collectives.transport.transport import TAG

STAGED_SENDS, STAGED_RECEIVES = 2, 16
"""Pinned buffers: two for each peer that is sent to, so that one is filled while the other leaves; and for receives
twice as many as the executor posts ahead, so that one is read into the device or sent on while the next are filled."""


class AwareTransport:
    """Device memory through an MPI that takes it (see transport.Transport)."""

    def __init__(self, comm: Any, lane: Lane, patient: bool) -> None:
        """`comm`: mpi4py communicator whose point-to-point messages are all ours; `patient`: waits sleep."""
        from mpi4py import MPI

        self._comm, self._from_address, self._byte = comm, MPI.buffer.fromaddress, MPI.BYTE
        self.tag = TAG
        self._lineups = Lineups(lane, patient)
        self._memory: dict[tuple[object, ...], Any] = {}

    def address(self, array: Any) -> int:
        """See Transport."""
        return array.data.ptr

    def view(self, array: Any) -> Span:
        """See Transport."""
        return Span(array.data.ptr, array.size, array.dtype)

    def scratch(self, slot: int, n_elems: int, like: Any) -> Span:
        """See Transport. In device memory."""
        key = (slot, _rounded(n_elems * like.itemsize))
        if key not in self._memory:
            self._memory[key] = device.load().empty(key[1], np.uint8)
        return Span(self._memory[key].data.ptr, n_elems, like.dtype)

    def sender(self, part: Span, peer: int) -> Message:
        """See Transport."""
        return Message(self._lineups, "send", peer, self._request(self._comm.Send_init, part, peer))

    def receiver(self, part: Span, peer: int) -> Message:
        """See Transport."""
        return Message(self._lineups, "receive", peer, self._request(self._comm.Recv_init, part, peer))

    def combiner(self, own: Span, received: Span, op: str) -> Callable[[], object]:
        """See Transport. Queues a kernel, which may read pinned memory."""
        return kernels().elementwise(f"combine_{own.dtype.name}_{op}", own, received)

    def _request(self, make: Callable[..., Any], part: Span, peer: int) -> Any:
        return make([self._from_address(part.address, part.nbytes), part.nbytes, self._byte], peer, self.tag)


class StagedTransport(AwareTransport):
    """Device memory through pinned host memory and any MPI.

    A send's values are copied to one of its peer's two pinned buffers while the message before leaves from the other;
    what is received for a sum is summed by a kernel that reads pinned memory itself, and what a plan sends on as it
    came leaves from where it came.
    """

    def __init__(self, comm: Any, lane: Lane, patient: bool) -> None:
        super().__init__(comm, lane, patient)
        self._n_sends: defaultdict[int, int] = defaultdict(int)
        self._n_receives = 0
        self._slots: dict[tuple[int, int, int], Slot] = {}
        self._landings: dict[tuple[int, int], Landing] = {}
        self._whole = Span(0, 0, np.dtype(np.uint8))
        self._came: dict[Span, tuple[int, Landing]] = {}

    def view(self, array: Any) -> Span:
        """See Transport. A plan begins: nothing has come yet."""
        self._whole = super().view(array)
        self._came = {}
        return self._whole

    def scratch(self, slot: int, n_elems: int, like: Any) -> Span:
        """See Transport. In pinned host memory."""
        return self._pinned("scratch", slot, n_elems, like.dtype)

    def sender(self, part: Span, peer: int) -> Message:
        """See Transport."""
        number, landing = self._came.get(part, (0, None))
        if landing is not None and self._n_receives - number < RECEIVES_AHEAD:
            request = self._request(self._comm.Send_init, _of(landing, part), peer)
            return PassedOn(self._lineups, peer, request, landing)
        slot = self._slot(peer, part)
        request = self._request(self._comm.Send_init, slot.memory[: part.nbytes], peer)
        return StagedSend(self._lineups, peer, request, part, slot)

    def receiver(self, part: Span, peer: int) -> Message:
        """See Transport."""
        self._changes(part)
        if part.is_pinned:
            return super().receiver(part, peer)
        self._n_receives += 1
        landing = self._landing(part)
        if self._whole.holds(part):  # and not what a wire packs, behind whose back the buffer changes
            self._came[part] = self._n_receives, landing
        request = self._request(self._comm.Recv_init, _of(landing, part), peer)
        return StagedReceive(self._lineups, peer, request, part, landing)

    def combiner(self, own: Span, received: Span, op: str) -> Callable[[], object]:
        """See Transport."""
        self._changes(own)
        return super().combiner(own, received, op)

    def _changes(self, part: Span) -> None:
        """From here on the plan has other values there than those that came. What came long ago is forgotten too."""
        self._came = {other: came for other, came in self._came.items()
                      if self._n_receives - came[0] < RECEIVES_AHEAD and not other.overlaps(part)}

    def _slot(self, peer: int, part: Span) -> Slot:
        """The buffers of a peer, and of a length, take turns."""
        n_bytes = _rounded(part.nbytes)
        self._n_sends[peer] += 1
        key = (peer, self._n_sends[peer] % STAGED_SENDS, n_bytes)
        if key not in self._slots:
            self._slots[key] = Slot(self._pinned("send", key, n_bytes, np.dtype(np.uint8)))
        return self._slots[key]

    def _landing(self, part: Span) -> Landing:
        """The buffers of a length take turns. What comes RECEIVES_AHEAD receives later is posted, at the earliest, when
        this one has been taken; what shares its buffer comes twice as much later."""
        n_bytes = _rounded(part.nbytes)
        key = (self._n_receives % STAGED_RECEIVES, n_bytes)
        if key not in self._landings:
            self._landings[key] = Landing(self._pinned("landing", key, n_bytes, np.dtype(np.uint8)))
        return self._landings[key]

    def _pinned(self, use: str, which: object, n_elems: int, dtype: np.dtype) -> Span:
        key = (use, which, _rounded(n_elems * dtype.itemsize))
        if key not in self._memory:
            self._memory[key] = device.pinned(key[2])
        return Span(self._memory[key].ctypes.data, n_elems, dtype, is_pinned=True)


def _of(landing: Landing, part: Span) -> Span:
    return landing.memory[: part.nbytes]


def _rounded(n_bytes: int) -> int:
    """To a power of two, so that plans of like chunks share memory."""
    return 1 << max(n_bytes - 1, 4095).bit_length()
