"""Counts what a pass would have a device do, without doing it: launches by kind, and bytes of the arrays they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import pytest

from scaffe.layers.kernels.cuda import deferred
from tests.pretend import array, compiler, cublas, cudnn, cudnn_operations, queue

VIEWS = {"getitem", "reshape", "view", "transpose", "moveaxis", "ravel", "squeeze", "broadcast_to"}
"""NumPy's functions that launch nothing."""


class Tally:
    """What was queued.

    Attributes:
        launches: by kernel, graph or function.
        n_bytes: of the arrays that each of them reads and writes, once each however often it does; of a convolution's
            bottom only the places that some window has, and of what is read beside thinned images those that count.
        events: records and waits on events.
    """

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()
        self.n_bytes: Counter[str] = Counter()
        self.events = 0

    @property
    def n_launches(self) -> int:
        """All launches."""
        return self.launches.total()

    @property
    def total_bytes(self) -> int:
        """All bytes."""
        return self.n_bytes.total()

    def clear(self) -> None:
        """Count from here on."""
        self.launches.clear()
        self.n_bytes.clear()
        self.events = 0

    def note(self, name: str, n_bytes: int) -> None:
        """One launch."""
        if name in VIEWS:
            return
        self.launches[name] += 1
        self.n_bytes[name] += n_bytes


@contextmanager
def counting() -> Iterator[Tally]:
    """Within it nothing is computed: what is queued is counted, and arrays keep their values."""
    tally = Tally()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue.Stream, "add", lambda stream, work, needs_context=True: stream.tail)
        patch.setattr(queue.Event, "record", _counted(queue.Event.record, tally))
        patch.setattr(queue.Stream, "wait_event", _counted(queue.Stream.wait_event, tally))
        _note_before(patch, compiler.RawKernel, "__call__", tally, lambda kernel, grid, block, args, **how: (
            kernel.name, sum(a.nbytes for a in args if isinstance(a, array.ndarray)) - _left_out(kernel.name, args)))
        _note_before(patch, cudnn.pygraph, "execute_plan_at_index", tally, lambda graph, *rest, **how: (
            "+".join(node.name for node in graph._nodes),
            sum(t.n_bytes for t in graph._tensors if t.uid is not None and not t.on_host) - _skipped(graph._nodes[0])))
        _note_before(patch, array, "call", tally, lambda name, function, args, kwargs: (
            name, sum(a.nbytes for a in array._device_arrays([*args, *kwargs.values()]))))
        _note_before(patch, cublas, "gemm", tally, lambda stream, transa, transb, m, n, k, *rest, **how: (
            "gemm", 4 * (m * k + k * n + m * n)))
        patch.setattr(deferred, "_launch", _named(deferred._launch, tally))
        yield tally


def _named(launch: Callable[..., None], tally: Tally) -> Callable[..., None]:
    """Counts the arrays of a table, which is a number to the kernel."""
    def named(table: deferred.Table, dtype: Any, other: Any, works: list[deferred.Work]) -> None:
        tally.n_bytes[table.name] += sum(a.nbytes for work in works for a in work.arrays)
        launch(table, dtype, other, works)
    return named


THINNED = {"sum_back_thinned": (0,), "add_thinned": (0, 2, 3, 4), "keep_places": (0,)}
"""Kernels of thinned images, and which of their arrays are whole but used at the places that count alone."""


def _left_out(name: str, args: tuple[Any, ...]) -> int:
    """Bytes of the other places of such a kernel's arrays."""
    if name not in THINNED:
        return 0
    whole = [args[i].nbytes for i in THINNED[name] if args[i] is not None]
    rows, columns, kept_rows, kept_columns, *_ = [int(a) for a in args if isinstance(a, np.uint32)]
    return sum(n_bytes - n_bytes * kept_rows * kept_columns // (rows * columns) for n_bytes in whole)


def _skipped(node: cudnn_operations.Node) -> int:
    """Bytes of a convolution's bottom that no window has: a 1x1 of stride 2 reads a quarter of it."""
    if node.name not in ("conv_fprop", "conv_wgrad"):
        return 0
    x, other = node.inputs
    w, y = (other, node.outputs[0]) if node.name == "conv_fprop" else (node.outputs[0], other)
    window = zip(x.dim[2:], w.dim[2:], y.dim[2:], *(node.options[each] for each in ("padding", "stride", "dilation")))
    n_read = prod(x.dim[:2]) * prod(len({place for tap in range(k) for o in range(n_out)
                                         if 0 <= (place := o * s + tap * d - p) < n})
                                    for n, k, n_out, p, s, d in window)
    return x.n_bytes - n_read * x.numpys_type.itemsize


def _counted(method: Callable[..., Any], tally: Tally) -> Callable[..., Any]:
    def counted(*args: Any) -> Any:
        tally.events += 1
        return method(*args)
    return counted


def _note_before(patch: pytest.MonkeyPatch, owner: Any, name: str, tally: Tally,
                 describe: Callable[..., tuple[str, int]]) -> None:
    original = getattr(owner, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        tally.note(*describe(*args, **kwargs))
        return original(*args, **kwargs)
    patch.setattr(owner, name, noted)
