"""Reads a trace of ``train -timeline``, and computes times of iterations and layers."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from scaffe.errors import UserError
from scaffe.input_files import read_text_input
from scaffe.pictures.timeline import Window, whole

TIMES, PLACES = ("ts", "dur"), ("pid", "tid")
MOST_MICROSECONDS, MOST_PLACE = 1e15, 1 << 63
STEP = "update"  # the activity that every iteration ends with, on every rank that trains
N_SHOWN, N_WARM = 3, 2  # iterations of a timeline, and those before it may begin
Event = dict[str, Any]


@dataclass(frozen=True)
class LayerTime:
    """One layer on rank 0, medians over the iterations.

    Attributes:
        forward_ms, backward_ms: milliseconds; 0 for a pass that the layer has not, or that runs with another layer's.
        multiply_adds: of this rank in one pass forward and one backward; 0 where the trace does not say.
    """

    name: str
    forward_ms: float
    backward_ms: float
    multiply_adds: tuple[int, int]

    @property
    def forward_gflops(self) -> float:
        """10⁹ operations a second, two a multiply-add; 0 where it is not known."""
        return 2 * self.multiply_adds[0] / self.forward_ms / 1e6 if self.forward_ms else 0.0

    @property
    def backward_gflops(self) -> float:
        """The same of backward."""
        return 2 * self.multiply_adds[1] / self.backward_ms / 1e6 if self.backward_ms else 0.0


@dataclass(frozen=True)
class Trace:
    """What a trace file holds.

    Attributes:
        events: in Chrome's format.
        net: the net's prototxt; empty in traces of older versions.
        multiply_adds: of forward and of backward, by layer.
        first_iteration: the number of the first one; 0 in traces of older versions.
    """

    events: list[Event]
    net: str = ""
    multiply_adds: dict[str, tuple[int, int]] = field(default_factory=dict)
    first_iteration: int = 0

    def ends(self) -> list[float]:
        """When each iteration ended, in milliseconds, on the lowest rank that trains."""
        ranks = [e["pid"] for e in self.events if e.get("ph") == "X" and e["name"] == STEP]
        return sorted({(e["ts"] + e["dur"]) / 1e3 for e in self.spans(min(ranks, default=0)) if e["name"] == STEP})

    def window(self, first: int, n_shown: int) -> Window:
        """Some iterations, all of which the trace has."""
        ends = [0.0, *self.ends()]
        at = first - self.first_iteration
        start, end = ends[at], ends[at + n_shown]
        names = [f"iteration {first + i}" for i in range(n_shown)]
        span = names[0].capitalize() if n_shown == 1 else f"Iterations {first} to {first + n_shown - 1}"
        return Window(start, end, f"{span} of {len(ends) - 1:,}: {end - start:,.1f} ms",
                      tuple(zip(names, ends[at + 1:at + n_shown + 1], strict=True)))

    def typical(self) -> Window:
        """Three iterations one after another, whose times are nearest to the median of those after the warm-up;
        everything where there are too few."""
        ends = [0.0, *self.ends()]
        times = [end - start for start, end in pairwise(ends)]
        firsts = range(N_WARM, len(times) - N_SHOWN + 1)
        if not firsts:
            return whole(self.events)
        usual, middle = median(times[N_WARM:]), (len(times) - N_SHOWN) // 2

        def distance(first: int) -> tuple[float, int]:
            return round(max(abs(time - usual) for time in times[first:first + N_SHOWN]), 6), abs(first - middle)

        return self.window(self.first_iteration + min(firsts, key=distance), N_SHOWN)

    def layers(self) -> list[LayerTime]:
        """The layers of rank 0, in the order in which forward first ran them."""
        times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        thread = self._layers_thread()
        for event in self.spans(0):
            kind, _, name = event["name"].partition(" ")
            if name and kind in ("data", "forward", "backward") and event["tid"] == thread:
                times[name]["backward" if kind == "backward" else "forward"].append(event["dur"] / 1e3)
        return [LayerTime(name, median(passes["forward"] or [0.0]), median(passes["backward"] or [0.0]),
                          self.multiply_adds.get(name, (0, 0))) for name, passes in times.items()]

    def spans(self, rank: int) -> list[Event]:
        """One rank's events that last, by their start."""
        return sorted((e for e in self.events if e.get("ph") == "X" and e["pid"] == rank), key=lambda e: e["ts"])

    def _layers_thread(self) -> int | None:
        named = (e["tid"] for e in self.events if e.get("ph") != "X" and e.get("name") == "thread_name"
                 and e["pid"] == 0 and e["args"]["name"] == "layers")
        return next(named, None)


def read_trace(path: str) -> Trace:
    """Read a trace in Chrome's format: spans with their four numbers.

    Raises:
        UserError: the file cannot be read or is something else; times are at most 10¹⁵ microseconds.
    """
    try:
        content = json.loads(read_text_input(path, error=UserError))
        events, about = list(content["traceEvents"]), content.get("otherData", {})
        counts = {str(name): (int(forward), int(backward))
                  for name, (forward, backward) in about.get("multiply_adds", {}).items()}
        _check(all(isinstance(count, int) and 0 <= count < MOST_PLACE for pair in counts.values() for count in pair))
        for event in events:
            if event.get("ph") == "X":
                _check(isinstance(event["name"], str) and _is_placed(event)
                       and all(type(event[key]) in (int, float) and 0 <= event[key] < MOST_MICROSECONDS
                               for key in TIMES))
            elif event.get("name") == "thread_name":
                _check(isinstance(event["args"]["name"], str) and _is_placed(event))
        first = about.get("first_iteration", 0)
        _check(type(first) is int and 0 <= first < MOST_PLACE)
        return Trace(events, str(about.get("net", "")), counts, first)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise UserError(f"{path}: not a trace that train -timeline wrote") from None


def _is_placed(event: Event) -> bool:
    return all(type(event[key]) is int and 0 <= event[key] < MOST_PLACE for key in PLACES)


def _check(is_right: bool) -> None:
    if not is_right:
        raise ValueError
