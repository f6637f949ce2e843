"""The thread that runs one shard: it takes messages, carries out the keeper's actions, and sleeps while idle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from scaffe.collectives.server.codec import N_NUMBERS, decode, encode
from scaffe.collectives.server.keeper import Apply, Keeper
from scaffe.collectives.server.mailbox import Mailbox
from scaffe.collectives.server.shard import BatchSteps

TICK_SECONDS = 1.0


class Service:
    """One running shard and its thread.

    Args:
        number: the shard's number.
        keeper: its state machine.
        steps: for each (batch, first worker), the step that applies the update on this shard.
        mail: its own mailbox.
        workers: the workers' mailboxes.
        fail: called in the shard's thread with the error that ended it.
    """

    def __init__(self, number: int, keeper: Keeper, steps: Mapping[tuple[int, int], BatchSteps], mail: Mailbox,
                 workers: Sequence[Mailbox], fail: Callable[[BaseException], None]) -> None:
        self.keeper = keeper
        self._number, self._steps, self._mail, self._workers, self._fail = number, steps, mail, workers, fail
        self._thread = threading.Thread(target=self._run, name=f"scaffe-shard-{number}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the messages sent before this call have been handled, and wait for it to end."""
        self._mail.put(encode(None, 0), lambda: None)
        self._thread.join()

    def _run(self) -> None:
        numbers = np.empty(N_NUMBERS, np.int64)
        try:
            while True:
                if not self._mail.take(numbers, TICK_SECONDS):
                    continue
                _, message = decode(numbers)
                if message is None:
                    return
                for action in self.keeper.handle(message):  # type: ignore[arg-type]
                    if isinstance(action, Apply):
                        self._steps[action.batch, action.workers[0]].run(action.workers, action.settings)
                    else:
                        self._workers[action.worker].put(encode(action.message, self._number), lambda: None)
        except BaseException as error:
            self._fail(error)
