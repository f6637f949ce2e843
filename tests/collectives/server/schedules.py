"""Workers and shards without threads: the real clients and keepers, with messages as late and as mixed as may be.

Each link from a worker to a shard, or back, keeps its order; which link moves next, and which worker acts, is drawn.
A shard's rows are the list of updates that have been applied to them, so that a read shows what it saw.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from scaffe.collectives.server.client import Client
from scaffe.collectives.server.keeper import Apply, Keeper

Made = tuple[int, int, int]  # an update: worker, batch, clock


@dataclass
class Setting:
    """A random program: how many of what, and which batches touch which shards."""

    n_workers: int
    n_shards: int
    slack: float
    n_clocks: list[int]  # by worker: then it leaves
    shards: list[list[tuple[int, ...]]]  # by worker and batch
    joint: frozenset[int]
    skips: float  # how likely a worker passes over a read or an update


@dataclass
class Run:
    """What happened: by shard, the steps in order; and every read with what it saw on each shard."""

    steps: dict[int, list[tuple[int, tuple[tuple[int, int], ...]]]] = field(default_factory=lambda: defaultdict(list))
    reads: list[tuple[int, int, int, dict[int, frozenset[Made]]]] = field(default_factory=list)  # worker, batch, clock
    made: list[set[Made]] = field(default_factory=list)  # by worker
    finished: int = 0


def draw(seed: int) -> Setting:
    """A setting: few of everything, uneven, with batches of one shard and of all."""
    rng = random.Random(seed)
    n_workers, n_shards, n_batches = rng.randint(1, 5), rng.randint(1, 4), rng.randint(1, 4)
    slack = rng.choice([0, 0, 1, 3, float("inf")])
    some = [tuple(sorted(rng.sample(range(n_shards), rng.randint(1, n_shards)))) for _ in range(n_batches)]
    shards = [list(some) for _ in range(n_workers)]
    joint = frozenset(b for b in range(n_batches) if rng.random() < 0.6)
    for own in shards:
        for b in set(range(n_batches)) - joint:
            own[b] = tuple(sorted(rng.sample(range(n_shards), rng.randint(1, n_shards))))
    most = rng.randint(0, 6)
    even = rng.random() < 0.5
    n_clocks = [most if even else rng.randint(0, most) for _ in range(n_workers)]
    return Setting(n_workers, n_shards, slack, n_clocks, shards, joint, rng.choice([0.0, 0.3]))


def run(setting: Setting, program_seed: int, schedule_seed: int) -> Run:
    """Run a program to its end under one schedule. Raises RuntimeError where nothing can move any more."""
    return _Simulation(setting, program_seed, random.Random(schedule_seed)).run()


class _Simulation:
    def __init__(self, setting: Setting, program_seed: int, rng: random.Random) -> None:
        self.setting, self.rng, self.result = setting, rng, Run()
        self.clients = [Client(w, setting.shards[w], setting.n_shards, setting.slack) for w in range(setting.n_workers)]
        self.keepers = [Keeper(setting.n_workers, setting.slack, setting.joint) for _ in range(setting.n_shards)]
        self.to_shard: dict[tuple[int, int], deque] = defaultdict(deque)
        self.to_worker: dict[tuple[int, int], deque] = defaultdict(deque)
        self.applied: list[set[Made]] = [set() for _ in range(setting.n_shards)]
        self.sent: dict[tuple[int, int, int], deque] = defaultdict(deque)  # by shard, worker, batch: clocks not applied
        self.result.made = [set() for _ in range(setting.n_workers)]
        self.workers = {w: self.work(w, random.Random(program_seed * 100 + w)) for w in range(setting.n_workers)}

    def run(self) -> Run:
        waiting = dict.fromkeys(self.workers, lambda: True)
        while self.workers or any(self.to_shard.values()) or any(self.to_worker.values()):
            moves = [("act", w) for w in self.workers if waiting[w]()]
            moves += [("in", link) for link, queue in self.to_shard.items() if queue]
            moves += [("out", link) for link, queue in self.to_worker.items() if queue]
            if not moves:
                raise RuntimeError(f"deadlock: {sorted(self.workers)} wait, clocks {[c.clock for c in self.clients]}")
            kind, what = self.rng.choice(moves)
            if kind == "act":
                try:
                    waiting[what] = next(self.workers[what])
                except StopIteration:
                    del self.workers[what]
                    self.result.finished += 1
            elif kind == "in":
                self.keep(what[1], self.to_shard[what].popleft())
            else:
                self.clients[what[1]].handle(what[0], self.to_worker[what].popleft())
        return self.result

    def work(self, worker: int, rng: random.Random) -> Iterator:
        """A worker's program; it yields what it waits for."""
        client, setting = self.clients[worker], self.setting
        for clock in range(setting.n_clocks[worker]):
            for batch in rng.sample(range(len(setting.shards[worker])), len(setting.shards[worker])):
                if rng.random() >= setting.skips:
                    client.begin_read(batch)
                    self.send(worker, client.ask(batch))
                    yield lambda batch=batch: client.is_ready(batch)
                    client.opened_read(batch)
                    saw = self.look(worker, batch)
                    yield lambda: True
                    if not setting.slack and saw != self.look(worker, batch):
                        raise RuntimeError(f"worker {worker}'s rows of batch {batch} changed while it read them")
                    self.result.reads.append((worker, batch, clock, saw))
                    client.end_read(batch)
                if rng.random() >= setting.skips:
                    client.begin_update(batch)
                    yield lambda batch=batch: client.is_free(batch)
                    client.opened_update(batch)
                    yield lambda: True
                    if any(self.sent[shard, worker, batch] for shard in setting.shards[worker][batch]):
                        raise RuntimeError(f"worker {worker} fills batch {batch}'s buffer, which a shard still reads")
                    self.result.made[worker].add((worker, batch, clock))
                    for shard in setting.shards[worker][batch]:
                        self.sent[shard, worker, batch].append(clock)
                    self.send(worker, client.end_update(batch, (1.0, float(clock))))
                yield lambda: True
            self.send(worker, client.advance())
        self.send(worker, client.leave())

    def look(self, worker: int, batch: int) -> dict[int, frozenset[Made]]:
        """What a read of a batch would see on each shard now: all updates of all workers' batches of that number."""
        return {shard: frozenset(made for made in self.applied[shard] if made[1] == batch)
                for shard in self.setting.shards[worker][batch]}

    def send(self, worker: int, messages: list) -> None:
        for shard, message in messages:
            self.to_shard[worker, shard].append(message)

    def keep(self, shard: int, message: object) -> None:
        for action in self.keepers[shard].handle(message):
            if isinstance(action, Apply):
                step = []
                for worker in action.workers:
                    clock = self.sent[shard, worker, action.batch].popleft()
                    self.applied[shard].add((worker, action.batch, clock))
                    step.append((worker, clock))
                self.result.steps[shard].append((action.batch, tuple(step)))
            else:
                self.to_worker[shard, action.worker].append(action.message)
