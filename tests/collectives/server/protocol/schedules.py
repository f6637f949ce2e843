"""Workers, shards and proxies without threads: the real state machines, with messages as late and as mixed as may be.

Each link from a worker to a shard or a proxy, or back, keeps its order, and so do the messages between nodes; rows that
are pushed or pulled arrive at any time after the message that announces them, those of one table in order. Which link
moves next, and which worker acts, is drawn. A shard's rows are the list of updates that have been applied to them, a
node's copy of them what it was when it was sent, so that a read shows what it saw. With slack, rows that were asked for
ahead are copied at any time between the answers and the read, as a puller does.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from scaffe.collectives.server.nodes.proxy import Arrivals, Proxy, Push, Tell
from scaffe.collectives.server.protocol.client import Client
from scaffe.collectives.server.protocol.keeper import Apply, Keeper
from scaffe.collectives.server.protocol.messages import Ready
from scaffe.collectives.server.tables.roles import Roles
from scaffe.collectives.topology import Topology

Made = tuple[int, int, int]  # an update: worker, batch, clock


@dataclass
class Setting:
    """A random program: who is where, and which batches touch which shards."""

    roles: Roles
    slack: float
    n_clocks: list[int]  # by worker: then it leaves
    shards: list[list[tuple[int, ...]]]  # by worker and batch
    joint: frozenset[int]
    skips: float  # how likely a worker passes over a read or an update
    newest: float = 0.2  # how likely it wants all updates of earlier iterations
    merged: frozenset[int] | None = None  # the joint batches whose rule merges; all if None

    @property
    def n_workers(self) -> int:
        return len(self.roles.workers)

    @property
    def n_shards(self) -> int:
        return len(self.roles.shards)


@dataclass
class Run:
    """What happened: by shard, the steps in order; and every read with what it saw on each shard."""

    steps: dict[int, list[tuple[int, tuple[tuple[int, int], ...]]]] = field(default_factory=lambda: defaultdict(list))
    reads: list[tuple[int, int, int, bool, dict[int, frozenset[Made]]]] = field(default_factory=list)
    """Worker, batch, clock, whether the newest rows were asked for, what was seen."""
    made: list[set[Made]] = field(default_factory=list)  # by worker
    finished: int = 0
    n_copied: int = 0  # reads that found their rows copied
    n_pushes: int = 0
    n_pulls: int = 0


def draw(seed: int) -> Setting:
    """A setting: few of everything, uneven, with batches of one shard and of all, on one node or several."""
    rng = random.Random(seed)
    nodes = [node for node in range(rng.choice([1, 1, 2, 3, 4])) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        rng.shuffle(nodes)
    n_servers = rng.choice([0, 0, rng.randrange(len(nodes))])
    roles = Roles.of(Topology(nodes), n_servers, rng.choice(["last", "spread"]))
    n_workers, n_shards, n_batches = len(roles.workers), len(roles.shards), rng.randint(1, 4)
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
    skips = rng.choice([0.0, 0.3])
    merged = frozenset(b for b in joint if not slack or rng.random() < 0.6)
    return Setting(roles, slack, n_clocks, shards, joint, skips, merged=merged)


def run(setting: Setting, program_seed: int, schedule_seed: int) -> Run:
    """Run a program to its end under one schedule. Raises RuntimeError where nothing can move any more."""
    return _Simulation(setting, program_seed, random.Random(schedule_seed)).run()


class _Link:
    """Between a node and a shard of another: messages in order, rows whenever they come."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy, self.arrivals = proxy, Arrivals()
        self.up: deque = deque()
        self.down: deque = deque()
        self.unsent: list[Push] = []  # pushes that have not left
        self.coming: list[Push] = []  # pushes announced to the shard
        self.filling: dict[int, deque] = defaultdict(deque)  # by batch: answers announced to the node, with their rows

    def moves(self) -> Iterator[tuple[str, object]]:
        if self.up:
            yield "up", None
        if self.down:
            yield "down", None
        yield from (("left", push) for push in self.unsent)
        yield from (("landed", push) for push in self.coming)
        yield from (("filled", batch) for batch, answers in self.filling.items() if answers)


class _Simulation:
    def __init__(self, setting: Setting, program_seed: int, rng: random.Random) -> None:
        self.setting, self.rng, self.result, roles = setting, rng, Run(), setting.roles
        workers, shards = range(setting.n_workers), range(setting.n_shards)
        self.clients = [Client(w, setting.shards[w], setting.n_shards, setting.slack) for w in workers]
        self.keepers = [Keeper(roles.members(roles.node_of_shard(s)), setting.slack, setting.joint) for s in shards]
        self.nodes = {node: roles.workers_on(node) for node in {roles.node_of_worker(w) for w in workers}}
        merged = setting.joint if setting.merged is None or not setting.slack else setting.merged
        self.links = {(node, shard): _Link(Proxy(own, setting.slack, setting.joint, merged))
                      for node, own in self.nodes.items()
                      for shard in shards if roles.node_of_shard(shard) != node}
        self.to_shard: dict[tuple[object, int], deque] = defaultdict(deque)  # from a worker, or a link
        self.to_proxy: dict[tuple[int, int, int], deque] = defaultdict(deque)
        self.to_worker: dict[tuple[int, int], deque] = defaultdict(deque)
        self.applied: list[set[Made]] = [set() for _ in shards]
        self.copies: dict[tuple[int, int, int], frozenset[Made]] = defaultdict(frozenset)  # by node, shard, batch
        self.buffers: dict[tuple[int, int, int], list[tuple[int, int]]] = {}  # by shard, worker, batch: (worker, clock)
        self.received: dict[tuple[int, int, int], list[tuple[int, int]]] = {}  # by shard, origin, batch
        self.gathered: dict[tuple[int, int], tuple[int, dict[int, frozenset[Made]]]] = {}  # question, rows
        self.result.made = [set() for _ in workers]
        self.workers = {w: self.work(w, random.Random(program_seed * 100 + w)) for w in workers}

    def run(self) -> Run:
        waiting = dict.fromkeys(self.workers, lambda: True)
        while True:
            moves = [("act", w, None) for w in self.workers if waiting[w]()]
            moves += [("in", place, None) for place, queue in self.to_shard.items() if queue]
            moves += [("proxy", place, None) for place, queue in self.to_proxy.items() if queue]
            moves += [("out", place, None) for place, queue in self.to_worker.items() if queue]
            moves += [("copy", place, None) for place in self.ahead()]
            moves += [(move, place, what) for place, link in self.links.items() for move, what in link.moves()]
            if not moves:
                break
            kind, place, what = self.rng.choice(moves)
            if kind == "act":
                try:
                    waiting[place] = next(self.workers[place])
                except StopIteration:
                    del self.workers[place]
                    self.result.finished += 1
            else:
                getattr(self, f"_{kind}")(place, what)
        if self.workers or any(keeper.workers for keeper in self.keepers):
            raise RuntimeError(f"deadlock: {sorted(self.workers)} wait, clocks {[c.clock for c in self.clients]}")
        return self.result

    def ahead(self) -> list[tuple[int, int]]:
        """The (worker, batch) pairs that a puller would copy now."""
        return [(worker, batch) for worker, client in enumerate(self.clients) for batch in client.prefetched()
                if self.setting.slack and self.gathered.get((worker, batch), (-1,))[0] != client.question(batch)]

    def work(self, worker: int, rng: random.Random) -> Iterator:
        """A worker's program; it yields what it waits for."""
        client, setting = self.clients[worker], self.setting
        for clock in range(setting.n_clocks[worker]):
            for batch in rng.sample(range(len(setting.shards[worker])), len(setting.shards[worker])):
                if rng.random() >= setting.skips:
                    if rng.random() < 0.2:
                        self.send(worker, client.ask(batch))
                        yield lambda: True
                    client.begin_read(batch)
                    newest = rng.random() < setting.newest
                    self.send(worker, client.ask(batch, newest))
                    yield lambda batch=batch: client.is_ready(batch)
                    client.opened_read(batch)
                    when, copy = self.gathered.get((worker, batch), (-1, {}))
                    is_copied = when == client.question(batch)
                    saw = copy if is_copied else self.look(worker, batch)
                    self.result.n_copied += is_copied
                    yield lambda: True
                    if not setting.slack and saw != self.look(worker, batch):
                        raise RuntimeError(f"worker {worker}'s rows of batch {batch} changed while it read them")
                    self.result.reads.append((worker, batch, clock, newest, saw))
                    client.end_read(batch)
                if rng.random() >= setting.skips:
                    client.begin_update(batch)
                    yield lambda batch=batch: client.is_free(batch)
                    client.opened_update(batch)
                    yield lambda: True
                    if any((shard, worker, batch) in self.buffers for shard in setting.shards[worker][batch]):
                        raise RuntimeError(f"worker {worker} fills batch {batch}'s buffer, which is still being read")
                    self.result.made[worker].add((worker, batch, clock))
                    for shard in setting.shards[worker][batch]:
                        self.buffers[shard, worker, batch] = [(worker, clock)]
                    self.send(worker, client.end_update(batch, (1.0, float(clock))))
                yield lambda: True
            self.send(worker, client.advance())
        self.send(worker, client.leave())

    def look(self, worker: int, batch: int) -> dict[int, frozenset[Made]]:
        """What a read of a batch would see on each shard now: all updates of all workers' batches of that number."""
        node = self.setting.roles.node_of_worker(worker)
        return {shard: self.copies[node, shard, batch] if (node, shard) in self.links else self.rows(shard, batch)
                for shard in self.setting.shards[worker][batch]}

    def rows(self, shard: int, batch: int) -> frozenset[Made]:
        return frozenset(made for made in self.applied[shard] if made[1] == batch)

    def send(self, worker: int, messages: list) -> None:
        node = self.setting.roles.node_of_worker(worker)
        for shard, message in messages:
            if (node, shard) in self.links:
                self.to_proxy[node, shard, worker].append(message)
            else:
                self.to_shard[worker, shard].append(message)

    # --- the moves

    def _copy(self, place: tuple[int, int], _: object) -> None:
        worker, batch = place
        self.gathered[place] = self.clients[worker].question(batch), self.look(worker, batch)

    def _in(self, place: tuple[object, int], _: object) -> None:
        """A shard takes a message."""
        shard = place[1]
        if not self.keepers[shard].workers:
            raise RuntimeError(f"{self.to_shard[place][0]} comes to shard {shard}, which all workers have left")
        for action in self.keepers[shard].handle(self.to_shard[place].popleft()):
            if isinstance(action, Apply):
                parts = [(self.buffers if self.is_at(shard, w) else self.received).pop((shard, w, action.batch))
                         for w in action.workers]
                step = tuple(part for some in parts for part in some)
                self.applied[shard] |= {(worker, action.batch, clock) for worker, clock in step}
                self.result.steps[shard].append((action.batch, step))
            elif self.is_at(shard, action.worker):
                self.to_worker[shard, action.worker].append(action.message)
            else:
                node, message = self.setting.roles.node_of_worker(action.worker), action.message
                rows = self.rows(shard, message.batch) if isinstance(message, Ready) else None
                self.links[node, shard].down.append((action.worker, message, rows))

    def _out(self, place: tuple[int, int], _: object) -> None:
        self.clients[place[1]].handle(place[0], self.to_worker[place].popleft())

    def _proxy(self, place: tuple[int, int, int], _: object) -> None:
        node, shard, _worker = place
        self.carry_out(node, shard, self.links[node, shard].proxy.handle(self.to_proxy[place].popleft()))

    def _up(self, place: tuple[int, int], _: object) -> None:
        """A message reaches the shard's node."""
        link, message = self.links[place], self.links[place].up.popleft()
        if isinstance(message, Push):
            link.arrivals.announced(message.update)
            link.coming.append(message)
            return
        self.to_shard[place, place[1]].extend(link.arrivals.came(message))

    def _landed(self, place: tuple[int, int], push: Push) -> None:
        self.links[place].coming.remove(push)
        self.to_shard[place, place[1]].extend(self.links[place].arrivals.complete(push.update))

    def _left(self, place: tuple[int, int], push: Push) -> None:
        self.links[place].unsent.remove(push)
        for worker in push.workers:
            del self.buffers[place[1], worker, push.update.batch]
        self.carry_out(*place, self.links[place].proxy.sent(push))

    def _down(self, place: tuple[int, int], _: object) -> None:
        """A message reaches the node of a proxy."""
        link = self.links[place]
        origin, message, rows = link.down.popleft()
        if isinstance(message, Ready):
            link.filling[message.batch].append((origin, message, rows))
        else:
            self.carry_out(*place, link.proxy.released((message.batch, origin)))

    def _filled(self, place: tuple[int, int], batch: int) -> None:
        origin, message, rows = self.links[place].filling[batch].popleft()
        self.copies[*place, batch] = rows
        self.carry_out(*place, self.links[place].proxy.answered((batch, origin), message))

    def carry_out(self, node: int, shard: int, actions: list) -> None:
        link = self.links[node, shard]
        for action in actions:
            if isinstance(action, Push):
                update = action.update
                content = [part for w in action.workers for part in self.buffers[shard, w, update.batch]]
                key = (shard, update.worker, update.batch)
                if key in self.received:
                    raise RuntimeError(f"{update} is pushed before the last one has been applied")
                self.received[key] = content
                link.up.append(action)
                link.unsent.append(action)
                self.result.n_pushes += 1
            elif isinstance(action, Tell):
                link.up.append(action.message)
                self.result.n_pulls += type(action.message).__name__ == "Read"
            else:
                self.to_worker[shard, action.worker].append(action.message)

    def is_at(self, shard: int, worker: int) -> bool:
        """Whether the worker sits on the shard's node."""
        return self.setting.roles.node_of_worker(worker) == self.setting.roles.node_of_shard(shard)
