"""Streams, events and graphs: work is queued with what it must wait for, and runs at once or as late as it may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.pretend.contexts import current_device, touch
from tests.pretend.registry import Registry

Work = Callable[[], Any]


class CudaError(RuntimeError):
    """What CuPy calls CUDARuntimeError."""


class Settings:
    """How queued work runs, and what the host waited for.

    Attributes:
        deferred: work runs only when something waits for it.
        looks: how often a host may ask of deferred work whether it is done before the device comes to it.
        waits: what made the host wait, one word each, in order.
    """

    deferred = False
    looks = 3
    waits: list[str] = []


settings = Settings()
lock = threading.RLock()
_turn = threading.Condition(lock)
NAP_SECONDS = 2e-4


class Node:
    """One piece of work and what it comes after; ``gate`` tells when what happens elsewhere lets it run."""

    __slots__ = ("work", "after", "gate", "done")

    def __init__(self, work: Work, after: list[Node], gate: Callable[[], bool] | None = None) -> None:
        self.work, self.after, self.gate, self.done = work, after, gate, False

    def run(self, waits: bool = True) -> None:
        """Run what is still undone of what it waits for, then itself; ``waits``: for closed gates, too."""
        with lock:
            stack = [self]
            while stack:
                node = stack[-1]
                undone = [] if node.done else [n for n in node.after if not n.done]
                if undone:
                    stack.extend(undone)
                    continue
                if not node.done and node.gate is not None and not node.gate():
                    if not waits:
                        return
                    _turn.wait(NAP_SECONDS)  # the other threads and processes go on meanwhile
                    continue
                stack.pop()
                if not node.done:
                    node.done, node.after = True, []
                    work, node.work = node.work, _nothing
                    work()


def _nothing() -> None:
    pass


class Graph:
    """A captured stretch of work: launched any number of times, on the same memory."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.streams: list[Stream] = []

    def launch(self, stream: Stream | None = None) -> None:
        """Queue it as one piece."""
        works = self.works

        def run() -> None:
            for work in works:
                work()
        enqueue(run, stream)

    def upload(self, stream: Stream | None = None) -> None:
        """Nothing to do."""


class Event:
    """A place in a stream's work."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self.node: Node | None = None
        self.graph: Graph | None = None
        self.shared: Any = None  # see ipc: what other processes know of it
        self.n_looks = 0
        self.device_id = touch()
        self.ptr = next(_numbers)
        _events[self.ptr] = self

    def record(self, stream: Stream | None = None) -> None:
        """Stand for what is queued on the stream by now."""
        touch()
        with lock:
            stream = stream or current_stream()
            if self.device_id != (current_device() if stream.device_id < 0 else stream.device_id):
                raise CudaError("cudaErrorInvalidResourceHandle: invalid resource handle: the event is another GPU's")
            passed = self.passed if self.shared is None else self.shared.recorded()
            self.graph, self.node = stream.graph, None if stream.graph else stream.add(passed)
            self.n_looks = 0
            if self.shared is not None:
                self.shared.node = self.node

    def passed(self) -> None:
        """A stream, or a launched recording, has come here."""

    @property
    def done(self) -> bool:
        """Whether it has come to pass."""
        return self.node is None or self.node.done

    def query(self) -> bool:
        """Whether it has come to pass, asked by a host that goes on asking: at last the device comes there."""
        touch()
        self.n_looks += 1
        if self.node is not None and self.n_looks > settings.looks:
            self.node.run(waits=False)
        return self.done

    def gate(self) -> Callable[[], bool] | None:
        """What another process's event lets pass; None for one of this process."""
        return None

    def synchronize(self) -> None:
        """The host waits."""
        if self.graph is not None:
            raise CudaError("operation not permitted on an event last recorded in a capturing stream")
        touch()
        settings.waits.append("event")
        if self.node is not None:
            self.node.run()


class Stream:
    """A queue of work. ``null`` is the legacy default stream, which the blocking streams wait for, and it for them."""

    null: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None,
                 ptr: int | None = None) -> None:
        self.ptr = ptr if ptr is not None else 0 if null else next(_numbers)
        self.device_id, self.priority = -1 if null or ptds else touch(), priority or 0
        self.blocking = not non_blocking
        self.tail = Node(_nothing, [])
        self.tail.done = True
        self.graph: Graph | None = None
        _streams[self.ptr] = self

    def add(self, work: Work, needs_context: bool = True) -> Node:
        """Queue work, or take it into the graph that is being captured."""
        if needs_context:
            touch()
        with lock:
            if self.graph is not None:
                self.graph.works.append(work)
                return self.tail
            after = [self.tail]
            if self.ptr == 0:
                after += [stream.tail for stream in _streams.alive() if stream.blocking and stream.ptr]
            elif self.blocking:
                after.append(Stream.null.tail)
            self.tail = Node(work, [n for n in after if not n.done])
            if not settings.deferred:
                self.tail.run(waits=False)
            return self.tail

    def add_gated(self, work: Work, gate: Callable[[], bool]) -> Node:
        """Queue work that begins once its gate is open, which is asked when all before has been done."""
        self.add(_nothing)
        with lock:
            self.tail = Node(work, [n for n in [self.tail] if not n.done], gate)
            return self.tail

    def wait_event(self, event: Event) -> None:
        """Later work comes after the event."""
        touch()
        with lock:
            if event.graph is not None:
                if event.graph.streams and self not in event.graph.streams:
                    event.graph.streams.append(self)
                    self.graph = event.graph
            elif (gate := event.gate()) is not None:
                self.tail = Node(_nothing, [n for n in [self.tail] if not n.done], gate)
            elif event.node is not None:
                self.tail = Node(_nothing, [n for n in (self.tail, event.node) if not n.done])

    def record(self, event: Event | None = None) -> Event:
        """Record an event, a new one where none is given."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """The host waits."""
        self.refuse_in_capture("synchronize")
        settings.waits.append("stream")
        self.drain()

    def drain(self) -> None:
        """Run all that is queued."""
        self.add(_nothing).run()

    @property
    def done(self) -> bool:
        """Whether nothing is queued."""
        return self.tail.done

    def launch_host_func(self, callback: Callable[[Any], Any], arg: Any) -> None:
        """Call on the host when the work before it is done."""
        self.add(lambda: callback(arg))

    def begin_capture(self, mode: int | None = None) -> None:
        """Take work into a graph from now on."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.refuse_in_capture("begin_capture")
        self.graph = Graph()
        self.graph.streams.append(self)

    def end_capture(self) -> Graph:
        """The graph."""
        graph = self.graph
        if graph is None or graph.streams[0] is not self:
            raise CudaError("operation failed due to a previous error during capture: the stream is not capturing")
        for stream in graph.streams:
            stream.graph = None
        graph.streams.clear()
        return graph

    def is_capturing(self) -> bool:
        """Whether work goes into a graph."""
        return self.graph is not None

    def refuse_in_capture(self, what: str) -> None:
        """Raise CudaError while work goes into a graph."""
        if self.graph is not None:
            raise CudaError(f"operation not permitted when stream is capturing: {what}")

    def use(self) -> Stream:
        """Be the current stream of this thread on its current device, which must be the stream's."""
        if self.device_id not in (-1, current_device()):
            raise RuntimeError(f"The device that the stream is created on ({self.device_id}) does not match with the "
                               f"current device ({current_device()})")
        vars(_local).setdefault("streams", {})[current_device()] = self
        return self

    def __enter__(self) -> Stream:
        _stack().append(self)
        return self.use()

    def __exit__(self, *_: object) -> None:
        """The stream of the `with` around this one is current again, or the null stream: CuPy forgets `use()`."""
        _stack().pop()
        (_stack() or [Stream.null])[-1].use()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


_numbers = count(0x5000)
_streams: Registry[Stream] = Registry()
_events: Registry[Event] = Registry()
_local = threading.local()


Stream.null = Stream(null=True)


def current_stream(device_id: int = -1) -> Stream:
    """This thread's, on its current device unless another is given."""
    return vars(_local).get("streams", {}).get(current_device() if device_id < 0 else device_id, Stream.null)


def forget() -> None:
    """This thread has no current streams."""
    vars(_local).pop("streams", None)
    vars(_local).pop("stacks", None)


def _stack() -> list[Stream]:
    """The streams of the `with` statements that this thread is in, on its current device."""
    found: list[Stream] = vars(_local).setdefault("stacks", {}).setdefault(current_device(), [])
    return found


def stream_at(ptr: int) -> Stream:
    """The stream of an address."""
    return _streams[ptr]


def event_at(ptr: int) -> Event:
    """The event of an address."""
    return _events[ptr]


def enqueue(work: Work, stream: Stream | None = None) -> None:
    """Queue work on a stream, the current one unless given."""
    (stream or current_stream()).add(work)


def host_waits(what: str, stream: Stream | None = None) -> None:
    """The host needs a result: it waits for a stream."""
    stream = stream or current_stream()
    stream.refuse_in_capture(what)
    settings.waits.append(what)
    stream.drain()


def drain_all() -> None:
    """The whole device."""
    for stream in _streams.alive():
        if stream.graph is not None:
            raise CudaError("operation not permitted when a stream is capturing: deviceSynchronize")
        stream.tail.run()


@contextmanager
def deferring(deferred: bool = True):
    """Within it, queued work runs as late as it may."""
    before, settings.deferred = settings.deferred, deferred
    try:
        yield
    finally:
        drain_all()
        settings.deferred = before
