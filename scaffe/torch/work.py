"""The work objects of torch.distributed's asynchronous calls, and their futures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work
from torch.futures import Future

from scaffe.collectives import Request
from scaffe.collectives.runtime.point_to_point import PendingMessage

NO_TIMEOUT = timedelta(0)
"""The value that c10d uses for it."""


class CollectiveWork(Work):  # type: ignore[misc]
    """Requests under way, the last of which ends last, and the steps that follow them on the helper thread.

    On a GPU, the future makes the stream of whoever waits for it follow the result; the host waits for messages only.

    Args:
        requests: in the order in which they were made; none where all is done already.
        steps: done once all requests are complete.
        result: of the future.
        devices: GPUs on which the result lies.
    """

    def __init__(self, requests: Sequence[Request], steps: Sequence[Callable[[], object]], result: Any,
                 devices: Sequence[torch.device]) -> None:
        super().__init__()
        self._requests, self._steps, self._result, self._devices = requests, steps, result, devices
        self._error: Exception | None = None
        self._future: Future[Any] = Future(devices=list(devices))
        if requests:
            requests[-1].add_done_callback(self._complete)
        else:
            self._complete()

    def _complete(self, last: Request | None = None) -> None:
        try:
            for request in self._requests:
                request.wait(stream=torch.cuda.current_stream() if self._devices else None)
            for step in self._steps:
                step()
        except Exception as error:  # whoever waits gets it
            self._error = error
            self._future.set_exception(error)
        else:
            self._future.set_result(self._result)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Blocks until the result is there.

        Raises:
            CommError: what the collective raised; or `timeout` has passed.
        """
        if self._requests:
            self._requests[-1].wait(timeout.total_seconds() or None)
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        """Whether the call has ended, well or not."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Whether the call has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """What the call has raised so far."""
        return self._error

    def result(self) -> Any:
        """The tensors that the call writes."""
        return self._result

    def get_future(self) -> Future[Any]:
        """The future, of those tensors."""
        return self._future


class MessageWork(Work):  # type: ignore[misc]
    """Messages between two ranks under way, and the steps that follow them in the thread that waits."""

    def __init__(self, messages: Sequence[PendingMessage], steps: Sequence[Callable[[], object]], result: Any) -> None:
        super().__init__()
        self._messages, self._steps, self._result = messages, list(steps), result
        self._sources: list[int] = []

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Blocks until the messages are there. Raises CommError as PendingMessage.wait does."""
        self._sources = [message.wait(timeout.total_seconds() or None).source for message in self._messages]
        while self._steps:
            self._steps.pop(0)()
        return True

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""
        return all(message.test() is not None for message in self._messages)

    def is_success(self) -> bool:
        """As `is_completed`; a message that fails is an error of `wait`."""
        return self.is_completed()

    def source_rank(self) -> int:
        """The rank that the message came from, once it has been waited for."""
        return self._sources[0]

    _source_rank = source_rank

    def result(self) -> Any:
        """The tensors that the call writes."""
        return self._result

    def get_future(self) -> Future[Any]:
        """A future that is complete: messages go on only while somebody waits, so this waits for them."""
        self.wait()
        future: Future[Any] = Future()
        future.set_result(self._result)
        return future
