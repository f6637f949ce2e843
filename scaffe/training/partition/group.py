"""Collectives among the ranks of a replica, on arrays of equal blocks, one a rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from math import prod

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.launch import grants_threads
from scaffe.collectives.planning.plan import bounds
from scaffe.collectives.request import Request
from scaffe.collectives.runtime.helper_threads import ProgressThread
from scaffe.training.timers import Timers

TAG = 0
Arrays = Mapping[int, np.ndarray]
"""Rank → a contiguous array."""


class Group:
    """The ranks that share a replica. What begins with ``i`` is carried on by a helper thread until ``wait``.
    ``communicator``: theirs, for this alone: what its helper thread does keeps nothing else waiting."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator, self.rank, self.n_ranks = communicator, communicator.rank, communicator.n_ranks
        self.timers, self._progress = Timers(), ProgressThread()

    @property
    def spans_nodes(self) -> bool:
        """Whether what the ranks exchange leaves their node, so that it pays to compute meanwhile."""
        return self.communicator.topology.n_nodes > 1

    def columns(self, n_columns: int, rank: int | None = None) -> slice:
        """The columns that a rank has (None: this one) of so many."""
        return slice(*bounds(self.rank if rank is None else rank, self.n_ranks, n_columns))

    def block(self, array: np.ndarray, rank: int | None = None) -> np.ndarray:
        """A rank's block of an array whose first axis the ranks share evenly, as a view."""
        n = len(array) // self.n_ranks
        at = (self.rank if rank is None else rank) * n
        return array[at:at + n]

    def zeros(self, n_elems: int, dtype: np.dtype) -> np.ndarray:
        """A flat array that the replica's ranks on this node have mapped, so that ``gather`` and ``scatter_sum`` copy
        nothing twice. All ranks call it, with the same length."""
        return self.communicator.alloc(n_elems, dtype)

    def gather(self, array: np.ndarray) -> None:
        """Give every rank's block to all ranks, in place."""
        self.communicator.allgather(array.reshape(-1))

    def scatter_sum(self, array: np.ndarray) -> None:
        """Sum arrays over the ranks; afterwards each rank has its own block of the sum, the rest is undefined."""
        self.communicator.reduce_scatter(array.reshape(-1))

    def igather(self, array: np.ndarray) -> Request:
        return self.communicator.iallgather(array.reshape(-1))

    def iscatter_sum(self, array: np.ndarray) -> Request:
        return self.communicator.ireduce_scatter(array.reshape(-1))

    def started(self, name: str, array: np.ndarray) -> Request:
        """Start ``gather`` or ``scatter_sum`` between nodes; on one node do it, since nothing is computed before it is
        awaited."""
        if self.spans_nodes:
            return self.igather(array) if name == "gather" else self.iscatter_sum(array)
        (self.gather if name == "gather" else self.scatter_sum)(array)
        return Request.completed(f"rank {self.rank}: {name}")

    def wait(self, request: Request, label: str) -> None:
        """Wait for what was started, and count the time under a label."""
        self.timers.wait(request, label)

    def sum(self, array: np.ndarray) -> None:
        self.communicator.allreduce(array.reshape(-1))

    def max(self, array: np.ndarray) -> None:
        self.communicator.allreduce(array.reshape(-1), "max")

    def swap(self, sent: np.ndarray, received: np.ndarray) -> None:
        """Send block r to rank r, and take the block that it sends to this rank.
        Both contiguous, first axis ``n_ranks``; all blocks alike on all ranks."""
        self.exchange(*self._swapped(sent, received))

    def iswap(self, sent: np.ndarray, received: np.ndarray) -> Request:
        return self.iexchange(*self._swapped(sent, received))

    def exchange(self, sent: Arrays, received: Arrays) -> None:
        """Send an array to each of some ranks, and receive one from each of some; as long as the other side's."""
        self._post(sent, received)()

    def iexchange(self, sent: Arrays, received: Arrays) -> Request:
        finish, label = self._post(sent, received), f"rank {self.rank}: an exchange"
        if grants_threads():
            return self._progress.submit(label, finish)
        finish()
        return Request.completed(label)

    def _swapped(self, sent: np.ndarray, received: np.ndarray) -> tuple[Arrays, Arrays]:
        received[self.rank] = sent[self.rank]
        others = [(self.rank + step) % self.n_ranks for step in range(1, self.n_ranks)]
        return {peer: sent[peer] for peer in reversed(others)}, {peer: received[peer] for peer in others}

    def _post(self, sent: Arrays, received: Arrays) -> Callable[[], None]:
        """Hand all messages to MPI. Returns what waits for them."""
        messages = self.communicator.messages
        pending = [messages.irecv(array.reshape(-1), peer, TAG) for peer, array in received.items()]
        pending += [messages.isend(array.reshape(-1), peer, TAG) for peer, array in sent.items()]

        def finish() -> None:
            for message in pending:
                message.wait()

        return finish


class SharedMapping:
    """An array that a node's ranks share, mapped at first use: in the first forward, in the same order on all ranks.

    In ``reshape`` a rank that failed to build its net would leave the others waiting for it. ``shape``: of the array,
    the same on all ranks."""

    def __init__(self, group: Group, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._group, self._shape, self._dtype = group, shape, np.dtype(dtype)

    @cached_property
    def array(self) -> np.ndarray:
        return self._group.zeros(prod(self._shape), self._dtype).reshape(self._shape)
