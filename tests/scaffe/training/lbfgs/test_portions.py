"""The portions' scheduler under random orders, deaths, halts, rejoins and duplicates; and how evenly it shares out."""

import heapq
import random

import pytest

from scaffe.training.lbfgs.portions import Portions, StragglerStatistics

PATIENCE = 400  # events without which a step would have hung


class Shards:
    """Who adds bundles up: counts each portion of each bundle that counts."""

    def __init__(self):
        self.added = []

    def add(self, bundle):
        self.added += bundle


def run_step(portions, n_portions, rng, names, may_die):
    """One step in a random order of events. Returns how often each portion was added up, and who computed what."""
    portions.begin(n_portions)
    shards, computing, on_the_way, now = Shards(), {}, [], 0.0
    idle, dead, still, computed = set(portions.replicas), set(names) - set(portions.replicas), [], []
    for _ in range(PATIENCE * n_portions):
        if portions.is_complete:
            assert sorted(shards.added) == list(range(n_portions))
            return computed
        now += rng.expovariate(1.0)
        kind = rng.random()
        if may_die and kind < 0.04 and len(portions.replicas) > 1:
            name = rng.choice(portions.replicas)
            lost = portions.leave(name)
            assert {(name, bundle) for bundle in lost} <= set(on_the_way)
            idle.discard(name), computing.pop(name, None), dead.add(name)
            continue  # what is on its way arrives all the same
        if still and kind < 0.2:  # it moves again, and has forgotten what it had not delivered; it may compute yet
            portions.join(still.pop())
        elif may_die and kind < 0.08 and dead:
            name = dead.pop()
            portions.join(name)
            idle.add(name)
        elif kind < 0.5 and idle & set(portions.replicas):
            name = rng.choice(sorted(idle & set(portions.replicas)))
            portion = portions.next(name, now)
            if portion is not None:
                computing[name] = portion
                idle.remove(name)
        elif kind < 0.8 and computing:
            name = rng.choice(sorted(computing))
            portion = computing.pop(name)
            portions.finished(name, portion, now)
            assert not portions.finished(name, portion, now)  # what is said twice counts once
            computed.append((name, portion))
            idle.add(name)
        elif on_the_way:
            name, bundle = on_the_way.pop(rng.randrange(len(on_the_way)))
            if portions.delivered(name, bundle, now):
                shards.add(bundle)
            assert not portions.delivered(name, bundle, now)
        still += portions.fence(now)
        for name in portions.due():
            on_the_way.append((name, portions.sends(name, now)))
    raise AssertionError(f"{n_portions} portions are not complete after {PATIENCE * n_portions} events")


@pytest.mark.parametrize("may_die", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_every_portion_counts_once(seed, may_die):
    rng = random.Random(seed)
    n_replicas, n_portions = rng.choice([1, 2, 3, 5, 8]), rng.choice([1, 2, 3, 7, 24])
    portions, names = Portions(rng.choice([1, 2, 4]), StragglerStatistics()), list(range(n_replicas))
    for name in names:
        portions.join(name)
    for _ in range(3):
        run_step(portions, n_portions, rng, names, may_die)


def test_a_replica_that_dies_costs_its_unsent_portions_only():
    portions = Portions(2, StragglerStatistics())
    portions.join(0), portions.join(1)
    portions.begin(6)
    done = [portions.next(1, 0.0) for _ in range(1)]
    portions.finished(1, done[0], 1.0)
    done.append(portions.next(1, 1.0))
    portions.finished(1, done[1], 2.0)
    assert portions.due() == [1]
    bundle = portions.sends(1, 2.0)
    assert portions.delivered(1, bundle, 2.5)
    third = portions.next(1, 2.0)
    portions.finished(1, third, 3.0)
    assert portions.leave(1) == []
    left, now = [], 3.0
    while (portion := portions.next(0, now)) is not None:
        left.append(portion)
        portions.finished(0, portion, now + 1)
        now += 1
    assert sorted(left) == sorted(set(range(6)) - set(bundle))
    assert third in left


def test_the_first_result_counts():
    portions = Portions(1, StragglerStatistics())
    portions.join(0), portions.join(1)
    portions.begin(1)
    assert portions.next(0, 0.0) == 0
    assert portions.next(1, 100.0) == 0
    assert portions.n_again == 1
    assert portions.finished(1, 0, 101.0)
    assert not portions.finished(0, 0, 102.0)
    assert portions.n_dropped == 1
    assert portions.due() == [1]
    bundle = portions.sends(1, 2.0)
    portions.leave(1)
    assert not portions.delivered(1, bundle, 2.5)  # it comes after the sender was taken for dead
    assert portions.next(0, 103.0) == 0


def simulate(seconds, n_portions, n_steps, stops=lambda name, now: 0.0, portions=None):
    """Replicas with a pace each, in simulated time. Returns each step's seconds, and who counted which portion."""
    portions = portions or Portions(4, StragglerStatistics())
    for name in range(len(seconds)):
        portions.join(name)
    times, counted, now, events, step = [], [], 0.0, [], -1
    idle = dict.fromkeys(range(len(seconds)), 0.0)
    for step in range(n_steps):
        portions.begin(n_portions)
        started, owner = now, {}
        while not portions.is_complete:
            for name in sorted(name for name, since in idle.items() if since <= now):
                if (portion := portions.next(name, now)) is not None:
                    del idle[name]
                    heapq.heappush(events, (now + seconds[name] + stops(name, now), name, portion, step))
            for name in portions.due():
                assert portions.delivered(name, portions.sends(name, now), now)
            if portions.is_complete:
                break
            tick = now + min(seconds) / 8  # idle replicas are asked again now and then
            if not events or events[0][0] > tick and idle:
                now = tick
                continue
            now, name, portion, of = heapq.heappop(events)
            idle[name] = now
            if of == step and portions.finished(name, portion, now):
                owner[portion] = name
        times.append(now - started)
        counted.append(owner)
    return times, counted


def test_uneven_replicas_share_the_work_by_their_speeds():
    seconds, n_portions = [1.0, 1.0, 1.0, 4.0], 60
    times, _ = simulate(seconds, n_portions, 10)
    ideal = n_portions / sum(1 / s for s in seconds)
    assert sum(times[2:]) / 8 <= 1.1 * ideal


def test_a_replica_that_stops_now_and_then_costs_little():
    last = [0.0]

    def stops(name, now):
        if name == 2 and now - last[0] > 60:
            last[0] = now
            return 20.0
        return 0.0

    seconds, n_portions, n_steps = [1.0, 1.0, 1.0, 4.0], 60, 20
    times, _ = simulate(seconds, n_portions, n_steps, stops)
    stopped = 20.0 * (sum(times) // 80)  # of replica 2
    ideal = (n_portions * n_steps + stopped) / sum(1 / s for s in seconds)
    assert sum(times[2:]) <= 1.15 * ideal


def test_the_same_portions_come_to_the_same_replica_and_in_order():
    _, counted = simulate([1.0, 1.1, 1.3], 30, 6)
    kept = [sum(counted[i][p] == counted[i - 1][p] for p in range(30)) for i in range(2, 6)]
    assert min(kept) >= 24
    portions = Portions(4, StragglerStatistics())
    portions.join(0), portions.join(1)
    portions.begin(10)
    order = []
    for _ in range(5):
        order.append(portions.next(1, 0.0))
        portions.finished(1, order[-1], 1.0)
    assert order == [5, 6, 7, 8, 9]
    assert portions.next(1, 1.0) == 4  # another's last


def test_a_replica_that_joins_late_takes_work_over():
    portions = Portions(1, StragglerStatistics())
    portions.join(0)
    portions.begin(8)
    assert portions.next(0, 0.0) == 0
    portions.join(1)
    assert portions.next(1, 0.0) == 7
    assert portions.replicas == [0, 1]


def test_a_replica_that_stands_still_is_fenced_when_only_its_bundle_is_missing():
    portions = Portions(1, StragglerStatistics())
    portions.join(0), portions.join(1)
    portions.begin(2)
    own, others = portions.next(0, 0.0), portions.next(1, 0.0)
    portions.finished(1, others, 1.0)
    bundle = portions.sends(1, 1.0)
    assert portions.fence(1.4) == []
    portions.finished(0, own, 2.0)
    assert portions.delivered(0, portions.sends(0, 2.0), 2.5)
    assert portions.fence(2.9) == []
    assert portions.fence(100.0) == [1]
    assert portions.next(0, 100.0) == others
    assert not portions.delivered(1, bundle, 101.0)  # whole or not at all: others have been told to compute it
    portions.join(1)
    portions.finished(0, others, 102.0)
    assert portions.delivered(0, portions.sends(0, 102.0), 103.0)
    assert portions.is_complete
    assert portions.n_fenced == 1
