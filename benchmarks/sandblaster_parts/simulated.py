"""DistBelief's figures 4 and 5 in small, with any number of workers in one process: real gradients, simulated time.

The parameters move as they would: Downpour's workers compute at parameters as old as the simulated clock makes them,
and L-BFGS is our optimiser, its passes timed by our scheduler of portions. Nothing depends on the machine it runs on.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sandblaster_parts.machines import Machines, Rates
from sandblaster_parts.task import Task
from scaffe.collectives.server.vectors import commands as c
from scaffe.collectives.server.vectors.shard import Blocks, VectorShard
from scaffe.training.lbfgs.descent import Lbfgs, Pairs
from scaffe.training.lbfgs.line_search import Rules
from scaffe.training.lbfgs.objective import Requests, Run, Smooth, X, first_commands
from scaffe.training.lbfgs.portions import Portions, StragglerStatistics

BATCH, PORTION, DECAY_FACTOR, WARM_IMAGES = 64, 250, 5e-4, 6400
MOST_REFUSED = 4
"""Idle workers that are told in vain that nothing is to be done before the rest is left alone until the next event."""
TESTED = 1500
"""Images between two tests."""
Points = Iterator[tuple[float, int, float | None]]
"""(seconds, images so far, accuracy where it was tested) after each step."""


def synchronous(task: Task, machines: Machines, rate: float) -> Points:
    """SGD whose batch all workers share in every step."""
    now = 0.0
    for seen, accuracy in task.trace(f"sgd {rate}", lambda: sgd(task, rate)):
        now += machines.sum_up(BATCH)
        yield now, seen, accuracy


def sgd(task: Task, rate: float) -> Iterator[tuple[int, float | None]]:
    """(images so far, accuracy) after each step: the same with any number of workers."""
    w, order, rule = task.first.copy(), Order(task), Sgd(rate)
    for seen in range(BATCH, 1 << 40, BATCH):
        rule(w, task.gradient(w, order.next())[1])
        yield seen, task.accuracy(w) if seen % TESTED < BATCH else None


def downpour(task: Task, machines: Machines, rule: Rule) -> Points:
    """Workers push each gradient and fetch after it; one trains alone first, as in the paper (a warm start)."""
    w, order, now = task.first.copy(), Order(task), 0.0
    for seen in range(BATCH, WARM_IMAGES + 1, BATCH) if machines.n_workers > 1 else ():
        rule(w, task.gradient(w, order.next())[1])
        now += machines.compute(0, BATCH)
        yield now, seen, task.accuracy(w) if seen % TESTED < BATCH else None
    seen = WARM_IMAGES if machines.n_workers > 1 else 0
    local = [w.copy() for _ in range(machines.n_workers)]
    events = [(now + machines.compute(worker, BATCH), worker, "computed") for worker in range(machines.n_workers)]
    heapq.heapify(events)
    held: dict[int, np.ndarray] = {}
    while True:
        now, worker, kind = heapq.heappop(events)
        if kind == "computed":
            held[worker] = task.gradient(local[worker], order.next())[1]
            heapq.heappush(events, (machines.carry(now), worker, "pushed"))
        elif kind == "pushed":
            rule(w, held.pop(worker))
            seen += BATCH
            local[worker] = w.copy()
            heapq.heappush(events, (machines.carry(now), worker, "fetched"))
            yield now, seen, task.accuracy(w) if seen % TESTED < BATCH else None
        else:
            heapq.heappush(events, (now + machines.compute(worker, BATCH), worker, "computed"))


def sandblaster(task: Task, machines: Machines) -> Points:
    """L-BFGS; each pass as long as our scheduler's portions take on these workers."""
    clock = Clock(task, machines)
    for kind, accuracy in task.trace("lbfgs", lambda: lbfgs(task)):
        if kind == "round":
            clock.round()
        elif kind == "pass":
            clock.make_pass()
        else:
            yield clock.now, clock.seen, accuracy


def lbfgs(task: Task) -> Iterator[tuple[str, float | None]]:
    """What L-BFGS does, ("round" of messages, "pass" or "step", accuracy): the same with any number of workers."""
    n = len(task.first)
    shard = VectorShard(Blocks(n, 1).of(0), np.dtype(np.float32))
    shard.out(X)[:] = task.first
    for command in first_commands(True, False, ((0, n, DECAY_FACTOR),)):
        shard.run(command)
    optimiser = Lbfgs(Smooth(True), Pairs(10), Rules())
    yield from ((kind, None) for kind in drive(optimiser.renew(), task, shard))
    while True:
        yield from ((kind, None) for kind in drive(optimiser.step(1.0), task, shard))
        yield "step", task.accuracy(shard.vectors[X])


class Order:
    """Batches of all images in a new order each time."""

    def __init__(self, task: Task) -> None:
        self._rng, self._n, self._left = np.random.default_rng(3), task.n_images, np.zeros(0, int)

    def next(self) -> np.ndarray:
        """The next batch's images."""
        if len(self._left) < BATCH:
            self._left = self._rng.permutation(self._n)
        batch, self._left = self._left[:BATCH], self._left[BATCH:]
        return batch


class Clock:
    """Simulated time of L-BFGS: passes and rounds of messages."""

    def __init__(self, task: Task, machines: Machines) -> None:
        self._machines, self.now, self.seen = machines, 0.0, 0
        self._portions, self._n_images = Portions(4, StragglerStatistics()), task.n_images
        self._portion = max(1, min(PORTION, task.n_images // (5 * machines.n_workers)))
        for worker in range(machines.n_workers):
            self._portions.join(worker)

    def round(self) -> None:
        """The coordinator asks all shards, and all answer."""
        self.now += 2 * self._machines.rates.latency

    def make_pass(self) -> None:
        """Workers read the parameters, get portions one after another and send bundles while they go on."""
        machines, portions, portion = self._machines, self._portions, self._portion
        self.seen += self._n_images
        portions.begin(-(-self._n_images // portion))
        events = [(machines.carry(self.now), "free", worker, 0) for worker in range(machines.n_workers)]
        heapq.heapify(events)
        idle: set[int] = set()
        bundles: list[tuple[int, tuple[int, ...]]] = []
        tick, next_tick = portion * machines.rates.image, 0.0
        while not portions.is_complete:
            self.now, kind, who, what = heapq.heappop(events)
            if kind == "done":
                portions.finished(who, what, self.now)
            elif kind == "there":
                portions.delivered(*bundles[who], self.now)
            if kind in ("free", "done"):
                idle.add(who)
            refused = 0
            for worker in sorted(idle):
                given = portions.next(worker, self.now)
                if given is None:
                    refused += 1
                    if refused == MOST_REFUSED:
                        break
                else:
                    idle.discard(worker)
                    n_images = min(portion, self._n_images - given * portion)
                    until = self.now + 2 * machines.rates.latency + machines.compute(worker, n_images)
                    heapq.heappush(events, (until, "done", worker, given))
            for worker in portions.due():
                bundles.append((worker, portions.sends(worker, self.now)))
                heapq.heappush(events, (machines.carry(self.now), "there", len(bundles) - 1, 0))
            if idle and next_tick <= self.now:
                next_tick = self.now + tick
                heapq.heappush(events, (next_tick, "tick", 0, 0))  # a portion may have become late


def drive(requests: Requests, task: Task, shard: VectorShard) -> Iterator[str]:
    """Answer the optimiser's requests; says which they are."""
    answer: Any = None
    while True:
        try:
            request = requests.send(answer)
        except StopIteration:
            return
        if isinstance(request, Run):
            found = [(command, shard.run(command)) for command in request.commands]
            answer = [c.merged(command, parts) for command, parts in found if isinstance(command, c.REDUCING)]
            if answer:
                yield "round"
            continue
        yield "pass"
        answer, total = 0.0, shard.out(request.into)
        total[:] = 0
        for first in range(0, task.n_images, PORTION):
            images = np.arange(first, min(first + PORTION, task.n_images))
            loss, gradient = task.gradient(shard.vectors[request.at], images)
            answer += loss * len(images) / task.n_images
            total += gradient * np.float32(len(images) / task.n_images)


Rule = Callable[[np.ndarray, np.ndarray], None]
"""Changes parameters by a gradient."""


class Sgd:
    """Plain descent."""

    def __init__(self, rate: float) -> None:
        self._rate = np.float32(rate)

    def __call__(self, w: np.ndarray, g: np.ndarray) -> None:
        """One update."""
        w -= self._rate * (g + np.float32(DECAY_FACTOR) * w)


class AdaGrad:
    """AdaGrad, whose sums of squares lie where the parameters do."""

    def __init__(self, rate: float) -> None:
        self._rate, self._squares = np.float32(rate), np.float32(0)

    def __call__(self, w: np.ndarray, g: np.ndarray) -> None:
        """One update."""
        g = g + np.float32(DECAY_FACTOR) * w
        self._squares = self._squares + g * g
        w -= self._rate * g / (np.sqrt(self._squares) + np.float32(1e-8))


WAYS: dict[str, tuple[Callable[[Task, Machines, float], Points], tuple[float, ...], int]] = {
    "SGD": (synchronous, (0.1, 0.03), 1),
    "Downpour SGD": (lambda task, machines, rate: downpour(task, machines, Sgd(rate)), (0.1, 0.03, 0.01, 0.003), 1),
    "Downpour AdaGrad": (lambda task, machines, rate: downpour(task, machines, AdaGrad(rate)), (0.02, 0.005), 1),
    "Sandblaster": (lambda task, machines, rate: sandblaster(task, machines), (1.0,), 4),
}
"""How, learning rates of which the best counts, and how many times as many images as the others it may have."""


def measure_simulated(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Accuracy against simulated seconds, for each way and number of workers, at each way's best learning rate."""
    task, rows = Task(Path(args.data), args.net), []
    for n_workers in map(int, args.workers.split(",")):
        for way, (make, rates, more) in WAYS.items():
            if args.ways and way not in args.ways.split(","):
                continue
            curves = {}
            for rate in rates:
                machines = Machines(n_workers, task.first.nbytes, Rates())
                curves[rate] = curve(make(task, machines, rate), more * args.epochs * task.n_images)
            rate = min(rates, key=lambda rate: (reached(curves[rate], args.accuracy), -curves[rate][-1][1]))
            points, seconds = curves[rate], reached(curves[rate], args.accuracy)
            rows.append({"part": "simulated", "net": args.net, "way": way, "workers": n_workers, "rate": rate,
                         "points": points})
            print(f"simulated {args.net} {way:17s} {n_workers:4d} worker(s), rate {rate:g}: {args.accuracy} after "
                  f"{seconds:.2f} s; accuracy {points[-1][1]:.3f}, best {max(a for _, a in points):.3f}, after "
                  f"{points[-1][0]:.1f} s", flush=True)
    return rows


def curve(steps: Points, n_images: int) -> list[tuple[float, float]]:
    """(simulated seconds, accuracy) at the tests, until so many images have been computed."""
    points = [(0.0, 0.1)]
    for seconds, seen, accuracy in steps:
        if accuracy is not None:
            points.append((seconds, accuracy))
        if seen >= n_images:
            break
    return points


def reached(points: list[tuple[float, float]], accuracy: float) -> float:
    """Seconds until an accuracy was reached; infinite if it never was."""
    return next((seconds for seconds, found in points if found >= accuracy), float("inf"))
