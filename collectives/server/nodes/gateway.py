"""The thread that sends and receives a rank's messages and rows between nodes; it sleeps while there are none."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.nodes.links import Links, PollingInterval, nothing
from scaffe.collectives.server.nodes.proxy import Action, Arrivals, Proxy, Push
from scaffe.collectives.server.nodes.transfers import ContiguousSpan, Incoming, Outgoing, RowPlacement, Staging
from scaffe.collectives.server.protocol.keeper import Send
from scaffe.collectives.server.protocol.mailbox import Mailbox, MailboxThread
from scaffe.collectives.server.protocol.messages import (
    N_NUMBERS,
    Clock,
    Copy,
    Final,
    Kept,
    Letter,
    Message,
    Read,
    Ready,
    Release,
    ToShard,
    Update,
    WorkerLeft,
    decode,
    encode,
)
from scaffe.collectives.server.shards.copies import Stage
from scaffe.collectives.server.tables.roles import Roles


class Gateway(MailboxThread):
    """Sends and receives one rank's messages with other nodes: of its own shard, and of proxies for their shards.

    Args:
        store: the node's memory; in this rank's mailbox workers and its own shard put what is for other nodes.
        stages: by shard, where chunks of histories lie: of this rank's shard, and of those whose copies it receives.
    """

    def __init__(self, rank: int, roles: Roles, store: Store, links: Callable[[Callable[[np.ndarray, int, int], None]],
                 Links], proxies: Mapping[int, Proxy], placement: RowPlacement, stages: Mapping[int, Stage],
                 fail: Callable[[BaseException], None]) -> None:
        super().__init__(f"scaffe-gateway-{rank}")
        self._roles, self._proxies, self._placement, self._fail = roles, proxies, placement, fail
        self._stages = stages
        self._mail = store.gateway_mail[rank]
        self._shard_mail, self._worker_mail, self._clocks = store.shard_mail, store.worker_mail, store.clocks
        self._nodes = [node for node in range(roles.topology.n_nodes) if node != roles.topology.node_of_rank[rank]]
        own = [shard for shard, of in enumerate(roles.shards) if of == rank]
        self._n_finals = placement.n_tables * (len(proxies) + len(own) * len(self._nodes))  # to come and to go
        self._arrivals: dict[tuple[int, int], Arrivals] = defaultdict(Arrivals)  # by shard and sending node
        self._queues: dict[tuple[int, int], deque[tuple[int, int, Incoming]]] = defaultdict(deque)  # by shard, table
        self._staging, self._backlog = Staging(store.tier), deque[Letter]()
        self._links = links(self._came)
        self._thread.start()

    # --- the thread

    def _run(self) -> None:
        numbers, polling, n_letters = np.empty(N_NUMBERS, np.int64), PollingInterval(), 0
        try:
            while not self._is_stopped and (self._n_finals or not self._links.is_idle or self._backlog):
                n_done = self._links.poll() + n_letters
                n_letters = self._take(numbers, polling.interval(n_done, self._links.is_busy, time.monotonic()))
            self._links.close()
        except BaseException as error:
            self._fail(error)

    def _take(self, numbers: np.ndarray, seconds: float) -> int:
        """Handle all messages in the mailbox; wait ``seconds`` for the first. Returns how many there were."""
        n_letters = 0
        while self._backlog or self._mail.take(numbers, 0.0 if n_letters else seconds, n_spins=1):
            n_letters += 1
            self._deal(self._backlog.popleft() if self._backlog else decode(numbers))
        return n_letters

    def _put(self, mail: Mailbox, numbers: np.ndarray) -> None:
        """Put a message into a local mailbox. While it is full, this rank's own mailbox is emptied into the backlog."""
        mail.put(numbers, self._set_aside, 0.01)

    def _set_aside(self) -> None:
        numbers = np.empty(N_NUMBERS, np.int64)
        while self._mail.take(numbers, 0.0, n_spins=1):
            self._backlog.append(decode(numbers))

    # --- from this node

    def _deal(self, letter: Letter) -> None:
        sender, receiver, message = letter
        if isinstance(message, (Ready, Release)):
            self._answer(sender, receiver, message)
        elif isinstance(message, (Update, Clock, Read, WorkerLeft)):
            self._carry_out(receiver, self._proxies[receiver].handle(message))
        elif isinstance(message, Copy):
            self._copy(sender, message)
        else:
            self._finish(sender)

    def _carry_out(self, shard: int, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Push):
                self._push(shard, action)
            elif isinstance(action, Send):
                self._put(self._worker_mail[action.worker], encode(action.message, shard, action.worker))
            else:
                self._links.tell(self._roles.shards[shard], encode(action.message, action.message.worker, shard))

    def _push(self, shard: int, push: Push) -> None:
        arrays, span = self._placement.updated(push.update.batch, push.workers, shard)
        transfer = Outgoing(arrays, span, self._staging,
                            lambda: self._carry_out(shard, self._proxies[shard].sent(push)))
        self._links.send(self._roles.shards[shard], encode(push.update, push.update.worker, shard), transfer)

    def _answer(self, shard: int, worker: int, message: Ready | Release) -> None:
        """Send an answer of this rank's shard to a worker, or all workers, of another node."""
        peer = self._roles.carrier(self._roles.node_of_worker(worker), shard)
        if isinstance(message, Release):
            self._links.tell(peer, encode(message, shard, worker))
            return
        values, span = self._placement.read(message.batch, worker, shard)
        self._links.send(peer, encode(message, shard, worker), Outgoing([values], span, self._staging, nothing))

    def _copy(self, shard: int, copy: Copy) -> None:
        array, peer = self._stages[shard].array(copy.chunk), self._roles.copier(shard)
        if peer is not None:
            transfer = Outgoing([array], ContiguousSpan.all_of(array), self._staging, nothing, yields=True)
            self._links.send(peer, encode(copy, shard), transfer)

    def _finish(self, shard: int) -> None:
        """Send the last values of this rank's shard, which is done, to every other node."""
        for node in self._nodes:
            for table in range(self._placement.n_tables):
                values, span = self._placement.held(table, shard)
                self._links.send(self._roles.carrier(node, shard), encode(Final(table), shard),
                                 Outgoing([values], span, self._staging, self._count_final))

    def _count_final(self) -> None:
        self._n_finals -= 1

    # --- from other nodes

    def _came(self, numbers: np.ndarray, tag: int, peer: int) -> None:
        sender, receiver, message = decode(numbers)
        if isinstance(message, (Ready, Final)):
            self._expect(sender, receiver, message, tag, peer)
        elif isinstance(message, Copy):
            array = self._stages[sender].array(message.chunk)
            self._links.receive(peer, tag, Incoming(array, ContiguousSpan.all_of(array), self._staging,
                                                    lambda: self._keep(sender, message)))
        elif isinstance(message, Kept):
            self._put(self._shard_mail[receiver], numbers)
        elif isinstance(message, Release):
            self._carry_out(sender, self._proxies[sender].released((message.batch, receiver)))
        elif isinstance(message, Update):
            arrivals = self._arrivals[receiver, self._roles.node_of_worker(sender)]
            arrivals.announced(message)
            values, span = self._placement.received(message.batch, sender, receiver)
            self._links.receive(peer, tag, Incoming(values, span, self._staging,
                                                    lambda: self._deliver(receiver, arrivals.complete(message))))
        elif message is not None:
            node = self._roles.node_of_worker(sender)
            if isinstance(message, Clock):  # for errors that name the slowest worker
                self._clocks[list(self._roles.workers_on(node))] = message.clock + 1
            self._deliver(receiver, self._arrivals[receiver, node].came(message))

    def _keep(self, shard: int, copy: Copy) -> None:
        self._stages[shard].place(copy.chunk)
        self._links.tell(self._roles.shards[shard], encode(Kept(copy.chunk), shard, shard))

    def _deliver(self, shard: int, messages: Sequence[ToShard]) -> None:
        for message in messages:
            self._put(self._shard_mail[shard], encode(message, message.worker, shard))

    def _expect(self, shard: int, worker: int, message: Ready | Final, tag: int, peer: int) -> None:
        """Receive rows for this node's copy of a table, one answer after the other: their rows may overlap."""
        if isinstance(message, Ready):
            table = self._placement.table_of(message.batch)
            values, span = self._placement.read(message.batch, worker, shard)
        else:
            table, (values, span) = message.table, self._placement.held(message.table, shard)
        queue = self._queues[shard, table]
        transfer = Incoming(values, span, self._staging, lambda: self._filled(shard, worker, message, queue))
        queue.append((peer, tag, transfer))
        if len(queue) == 1:
            self._links.receive(peer, tag, transfer)

    def _filled(self, shard: int, worker: int, message: Message, queue: deque[tuple[int, int, Incoming]]) -> None:
        queue.popleft()
        if isinstance(message, Ready):
            self._carry_out(shard, self._proxies[shard].answered((message.batch, worker), message))
        else:
            self._count_final()
        if queue:
            self._links.receive(*queue[0])
