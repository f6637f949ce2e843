"""The thread that runs one shard: it receives messages, carries out the keeper's actions, and sleeps while idle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.protocol.keeper import Action, Apply, Keeper
from scaffe.collectives.server.protocol.mailbox import Mailbox, MailboxThread
from scaffe.collectives.server.protocol.messages import N_NUMBERS, Copy, Kept, Read, ToShard, Update, decode, encode
from scaffe.collectives.server.shards.copies import CopySchedule, Stage
from scaffe.collectives.server.shards.shard import BatchSteps

TICK_SECONDS = 0.1
"""How long the thread sleeps at most while no message comes: a recovery waits for it."""


class Service(MailboxThread):
    """One running shard and its thread, which ends when all workers have left.

    Args:
        steps: for each (batch, first worker), the step that applies the update on this shard.
        gateway: the mailbox for answers to workers of other nodes; None on a single node.
        copies: what decides which chunk of the histories is sent to their second copy next, and where chunks lie on
            their way there; None where there is no copy.
        table_of: by batch, the table's number.

    Attributes:
        n_reads, n_updates: messages so far; those of another node's workers that its proxy has merged count once.
        look: called now and then in the thread; raises CommError where tables are damaged.
    """

    def __init__(self, number: int, keeper: Keeper, steps: Mapping[tuple[int, int], BatchSteps], store: Store,
                 gateway: Mailbox | None, copies: tuple[CopySchedule, Stage | None], table_of: Sequence[int],
                 fail: Callable[[BaseException], None]) -> None:
        super().__init__(f"scaffe-shard-{number}")
        self._number, self._keeper, self._steps, self._fail = number, keeper, steps, fail
        self._mail, self._workers, self._gateway = store.shard_mail[number], store.worker_mail, gateway
        (self._schedule, self._stage), self._table_of = copies, table_of
        self.look: Callable[[], None] = lambda: None
        self._actions = deque[Action]()
        self.n_reads = self.n_updates = 0
        self._thread.start()

    def _run(self) -> None:
        numbers = np.empty(N_NUMBERS, np.int64)
        try:
            while (self._keeper.workers or self._actions or self._schedule.is_under_way) and not self._is_stopped:
                if self._mail.take(numbers, TICK_SECONDS):
                    self._handle(decode(numbers).message)  # type: ignore[arg-type]
                    self._go_on()
                self.look()
            if self._gateway is not None:
                self._gateway.put(encode(None, self._number), self._check)
        except _Stopped:
            return
        except BaseException as error:
            self._fail(error)

    def _handle(self, message: ToShard | Kept) -> None:
        self.n_reads += isinstance(message, Read)
        self.n_updates += isinstance(message, Update)
        if isinstance(message, Kept):
            self._schedule.kept()
        else:
            self._actions.extend(self._keeper.handle(message))

    def _go_on(self) -> None:
        """Carry out all actions that can be; an update that has to wait for the copy holds up those behind it."""
        while self._actions and not self._must_wait(self._actions[0]):
            self._carry_out(self._actions.popleft())
        chunk = self._schedule.begin() if self._keeper.workers or self._actions else None
        if chunk is not None and self._stage is not None and self._gateway is not None:
            self._stage.fill(chunk)  # from here on the histories may change
            self._gateway.put(encode(Copy(chunk), self._number), self._check)

    def _must_wait(self, action: Action) -> bool:
        return isinstance(action, Apply) and self._schedule.must_wait(self._table_of[action.batch])

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Apply):
            self._steps[action.batch, action.workers[0]].run(action.workers, action.settings)
            self._schedule.made(self._table_of[action.batch])
            return
        mail = self._workers.get(action.worker, self._gateway)
        if mail is not None:
            mail.put(encode(action.message, self._number, action.worker), self._check)

    def _check(self) -> None:
        if self._is_stopped:
            raise _Stopped


class _Stopped(Exception):
    """Ends the thread while it waits for room in a mailbox."""
