"""Coordinator, shards and replicas over a network whose messages are as late, and replicas as slow, as a seed says."""

import random

import numpy as np
import pytest

from scaffe.collectives.server.vectors import messages as m
from scaffe.collectives.server.vectors.host import Host
from scaffe.collectives.server.vectors.shard import Blocks, VectorShard
from scaffe.training.lbfgs.descent import Lbfgs, Pairs
from scaffe.training.lbfgs.line_search import Rules
from scaffe.training.lbfgs.objective import Smooth, first_commands
from scaffe.training.lbfgs.portions import Portions, StragglerStatistics
from scaffe.training.sandblaster.coordinator import Coordinator
from scaffe.training.sandblaster.messages import Batch, Begin, Finished, Free, Take, Taken, Wish
from scaffe.training.sandblaster.replica import Replica

rng = np.random.default_rng(2)
ROWS, WANTED, N_ELEMS, L2 = rng.normal(size=(30, 9)), rng.normal(size=30), 9, 0.1
PHASES = ["synchronize", "renew", *["step"] * 12, "synchronize"]
MOST_EVENTS = 200_000


class Cluster:
    """All ranks in one process.

    Attributes:
        computed: portions computed, by replica.
        doomed: replicas that are still to die, at moments by chance.
        dead: those that have.
        news: those of them of which the coordinator has not heard.
        sleepy: replicas that stand still now and then, until a whole pass has been made without them.
        asleep: those that do, and after how many passes they move again.
        n_halts: how often one did.
    """

    doomed, dead, news, sleepy, n_halts = (), (), (), (), 0

    def __init__(self, seed, n_replicas, n_servers, portion, in_order, slow=()):
        self.random, self.slow, self.now = random.Random(seed), slow, 0.0
        self.links, self.computed, self.asleep = {}, [0] * n_replicas, {}
        n_shards = n_servers or n_replicas
        self.shards = range(n_replicas if n_servers else 0, n_replicas + n_servers)
        layout = Blocks(N_ELEMS, n_shards)
        intervals = {rank: layout.interval(i) for i, rank in enumerate(self.shards)}
        self.data = [np.zeros(N_ELEMS) for _ in range(n_replicas)]
        self.diff = [np.zeros(N_ELEMS) for _ in range(n_replicas)]
        self.replicas = [Replica(self.data[r], self.diff[r], [slice(0, N_ELEMS)], intervals, self.sender(r))
                         for r in range(n_replicas)]
        self.stores = {rank: VectorShard(layout.of(i), np.dtype(np.float64)) for i, rank in enumerate(self.shards)}
        self.hosts = {rank: Host(store, self.sender(rank)) for rank, store in self.stores.items()}
        for store in self.stores.values():
            store.out("x")
            for command in first_commands(True, False, ((0, N_ELEMS, L2),)):
                store.run(command)
        optimiser = Lbfgs(Smooth(True), Pairs(5), Rules(noise=1e-14))
        send = self.sender(0)
        portions = Portions(2 - in_order, StragglerStatistics())
        self.coordinator = Coordinator(optimiser, portions, n_replicas, self.shards, in_order,
                                       lambda dest, message: send(dest, message, None), lambda: self.now)
        self.batch = Batch(0, len(ROWS), portion)
        self.mains = {rank: self.main(rank) for rank in range(n_replicas)}
        self.waits = {rank: next(main) for rank, main in self.mains.items()}

    def sender(self, source):
        def send(dest, message, payload):
            self.links.setdefault((source, dest, payload is None), []).append((message, payload))
        return send

    def main(self, rank):
        """What the thread with the net does; yields conditions to wait for."""
        replica, send, step = self.replicas[rank], self.sender(rank), -1
        send(0, Free(), None)
        for number, kind in enumerate(PHASES, 1):
            if rank == 0:
                send(0, Begin(number, kind, self.batch, 0.5), None)
            while True:
                yield lambda number=number: number in replica.over or replica.jobs
                if replica.over.pop(number, None):
                    break
                job = replica.jobs.popleft()
                if step != job.step:
                    replica.n_read = 0
                    replica.read(job.step)
                    yield lambda: replica.n_read == len(self.shards)
                    step = -1 if replica.is_mixed else job.step
                if isinstance(job, Take):
                    send(0, Taken(job.step), None)
                    continue
                end = self.now + self.random.random() * (30 if rank in self.slow else 3)
                loss = self.compute(rank, job)
                yield lambda end=end: self.now >= end
                replica.finished(job.weight)
                send(0, Finished(job.step, job.portion, loss), None)
                yield lambda: replica.verdict

    def compute(self, rank, job):
        self.computed[rank] += 1
        rows = slice(job.first, job.first + job.n_images)
        errors = ROWS[rows] @ self.data[rank] - WANTED[rows]
        self.diff[rank][:] = ROWS[rows].T @ errors / job.n_images
        return float((errors**2).mean() / 2)

    def kill(self, rank):
        """Of what it sent an end is lost, of each kind another; what is sent to it is lost too."""
        del self.waits[rank]
        self.doomed = [other for other in self.doomed if other != rank]
        self.dead, self.news = [*self.dead, rank], [*self.news, rank]
        for (source, _, _), queue in sorted(self.links.items()):
            if source == rank:
                del queue[self.random.randint(0, len(queue)):]

    def halt(self):
        passes = self.coordinator.optimiser.progress.n_evaluations
        if self.sleepy and not self.asleep and self.random.random() < 0.01:
            self.asleep[self.random.choice(self.sleepy)] = passes + 2
            self.n_halts += 1
        for rank, until in list(self.asleep.items()):
            if passes >= until or self.coordinator._is_reading or self.waits.keys() <= self.asleep.keys():
                del self.asleep[rank]  # all read the same parameters before a test: that waits for everybody

    def disturb(self):
        if self.doomed and self.random.random() < 0.002:
            self.kill(self.random.choice(self.doomed))
        if self.news and self.random.random() < 0.02:
            rank, *self.news = self.news
            for queue in (queue for (source, _, _), queue in self.links.items() if source == rank):
                queue.clear()  # MPI gives no more of what a rank sent once it is known to be lost
            self.coordinator.lose(rank)

    def full(self):
        return [link for link, queue in self.links.items() if queue and link[1] not in self.asleep]

    def deliver(self):
        source, dest, _ = link = self.random.choice(sorted(self.full()))
        message, payload = self.links[link].pop(0)
        if dest in self.dead:
            return
        if message.to == m.SHARD:
            self.hosts[dest].handle(source, message, payload)
        elif message.to == m.REPLICA:
            self.replicas[dest].handle(source, message, payload)
        else:
            self.coordinator.handle(source, message)

    def run(self):
        for _ in range(MOST_EVENTS):
            self.now += 0.05
            self.disturb()
            self.halt()
            ready = [rank for rank, condition in self.waits.items() if rank not in self.asleep and condition()]
            if not self.waits:
                return
            has_mail = bool(self.full())
            if ready and (not has_mail or self.random.random() < 0.3):
                rank = self.random.choice(ready)
                try:
                    self.waits[rank] = next(self.mains[rank])
                except StopIteration:
                    del self.waits[rank]
            elif has_mail:
                self.deliver()
            else:
                self.coordinator.tick()
        raise AssertionError(f"ranks {sorted(self.waits)} still wait")


def expected():
    return np.linalg.solve(ROWS.T @ ROWS / 30 + L2 * np.eye(N_ELEMS), ROWS.T @ WANTED / 30)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_all_replicas_end_at_the_minimum(seed, in_order):
    pick = random.Random(seed)
    n_replicas = pick.choice([1, 2, 3, 5])
    slow = [n_replicas - 1] if n_replicas > 1 and seed % 2 else []
    cluster = Cluster(seed, n_replicas, pick.choice([0, 1, 2]), pick.choice([4, 7, 30]), in_order, slow)
    cluster.run()
    assert cluster.coordinator.optimiser.progress.n_steps >= 8
    for data in cluster.data:
        np.testing.assert_allclose(data, expected(), atol=1e-6)
    np.testing.assert_array_equal(np.concatenate([s.vectors["x"] for s in cluster.stores.values()]), cluster.data[0])


def test_every_gradient_is_that_of_the_whole_batch():
    """Whatever came twice, late or in pieces: what is left on the shards is the gradient at x."""
    for seed in range(10):
        cluster = Cluster(seed, 4, 1, 4, False, slow=[1, 3])
        cluster.run()
        x = cluster.data[0]
        (store,) = cluster.stores.values()
        gradient = ROWS.T @ (ROWS @ x - WANTED) / 30 + L2 * x
        np.testing.assert_allclose(store.vectors[cluster.coordinator.optimiser._g], gradient, atol=1e-13)


def test_late_portions_are_given_out_again_and_results_that_come_too_late_do_not_count():
    again = late = 0
    for seed in range(6):
        cluster = Cluster(seed, 3, 0, 4, False, slow=[2])
        cluster.run()
        again += cluster.coordinator.portions.n_again
        late += cluster.coordinator.portions.n_dropped
        assert sum(cluster.computed) >= cluster.batch.n_portions * cluster.coordinator.optimiser.progress.n_evaluations
    assert again > 0
    assert late > 0


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_replicas_that_die_change_nothing_for_the_others(seed, in_order):
    pick = random.Random(seed)
    n_replicas, n_servers, portion = pick.choice([2, 3, 5]), pick.choice([1, 2]), pick.choice([4, 7])
    cluster = Cluster(seed, n_replicas, n_servers, portion, in_order, slow=[1] if seed % 2 else [])
    cluster.doomed = list(range(1, n_replicas))
    cluster.run()
    assert cluster.dead
    living = [rank for rank in range(n_replicas) if rank not in cluster.dead]
    for rank in living:
        np.testing.assert_allclose(cluster.data[rank], expected(), atol=1e-6)
        np.testing.assert_array_equal(cluster.data[rank], cluster.data[0])
    if in_order:  # to the bit, whoever computes what
        alone = Cluster(seed + 100, 1, n_servers, portion, in_order)
        alone.run()
        np.testing.assert_array_equal(cluster.data[0], alone.data[0])


@pytest.mark.parametrize("in_order", [False, True])
def test_passes_are_made_without_replicas_that_stand_still_which_come_back(in_order):
    halts = fenced = 0
    for seed in range(10):
        cluster = Cluster(seed, 4, 1 + seed % 2, 4, in_order)
        cluster.sleepy = [1, 2, 3]
        cluster.run()
        halts, fenced = halts + cluster.n_halts, fenced + cluster.coordinator.portions.n_fenced
        assert cluster.coordinator.portions.replicas == [0, 1, 2, 3]
        for data in cluster.data:
            np.testing.assert_allclose(data, expected(), atol=1e-6)
            np.testing.assert_array_equal(data, cluster.data[0])
        x, stores = cluster.data[0], cluster.stores.values()
        found = np.concatenate([store.vectors[cluster.coordinator.optimiser._g] for store in stores])
        np.testing.assert_allclose(found, ROWS.T @ (ROWS @ x - WANTED) / 30 + L2 * x, atol=1e-13)
        if in_order:
            alone = Cluster(seed + 100, 1, 1 + seed % 2, 4, in_order)
            alone.run()
            np.testing.assert_array_equal(x, alone.data[0])
    assert halts >= fenced > 2


def test_what_replicas_wish_for_comes_to_all_at_the_end_of_the_same_phase():
    cluster, heard = Cluster(3, 3, 1, 4, False), {}
    for rank, replica in enumerate(cluster.replicas):
        replica.over = Heard(heard.setdefault(rank, {}))
    cluster.sender(2)(0, Wish(1), None)
    cluster.sender(1)(0, Wish(2), None)
    cluster.run()
    assert heard[0] == heard[1] == heard[2]
    wishes = [heard[0][phase] for phase in sorted(heard[0])]
    assert max(wishes) == 2
    assert sum(map(bool, wishes)) <= 2


class Heard(dict):
    """A replica's finished phases, whose wishes are noted."""

    def __init__(self, wishes):
        super().__init__()
        self.wishes = wishes

    def __setitem__(self, phase, over):
        super().__setitem__(phase, over)
        self.wishes[phase] = over.wish
