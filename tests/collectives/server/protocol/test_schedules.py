"""Clients and keepers under random schedules: how old a read may be, in which order slack 0 applies, nothing is
lost."""

import math
from collections import defaultdict

import pytest

from scaffe.collectives.server.nodes.proxy import Proxy, Push, Tell
from scaffe.collectives.server.protocol.keeper import Send
from scaffe.collectives.server.protocol.messages import Clock, Read, Ready, Release, Update
from tests.collectives.server.protocol.schedules import draw, run

SEEDS = range(400)
some_seeds = pytest.mark.parametrize("seeds", [SEEDS[:20], pytest.param(SEEDS[20:120], marks=pytest.mark.thorough)],
                                     ids=["few", "many"])


@pytest.mark.parametrize("seeds", [SEEDS[:50], pytest.param(SEEDS[50:], marks=pytest.mark.thorough)],
                         ids=["few", "many"])
def test_reads_are_as_new_as_the_slack_promises_and_every_update_is_applied_once(seeds):
    n_copied = 0
    for seed in seeds:
        setting = draw(seed)
        done = run(setting, seed, seed)
        n_copied += done.n_copied
        assert done.finished == setting.n_workers
        made = set().union(*done.made)
        for worker, batch, clock, newest, saw in done.reads:
            for shard, seen in saw.items():
                due = {m for m in made if m[1] == batch and shard in setting.shards[m[0]][batch]}
                must = {m for m in due if m[2] < clock - (0 if newest else setting.slack)}
                own = {m for m in due if m[0] == worker and m[2] < clock}
                assert seen >= must | (own if setting.slack else set()), (seed, worker, batch, clock)
                if not setting.slack:
                    assert seen == must, (seed, worker, batch, clock)
        for shard, steps in done.steps.items():
            applied = [(worker, batch, clock) for batch, step in steps for worker, clock in step]
            assert len(applied) == len(set(applied))
            assert set(applied) == {m for m in made if shard in setting.shards[m[0]][m[1]]}
    assert n_copied > len(seeds) // 2


@some_seeds
def test_slack_0_makes_the_same_steps_under_every_schedule(seeds):
    """For each batch: those of different batches have no rows in common, or come in order at an iteration's end."""
    for seed in seeds:
        setting = draw(seed)
        setting.slack = 0
        found = []
        for schedule in range(4):
            steps = run(setting, seed, schedule).steps
            found.append({(shard, batch): [step for b, step in steps[shard] if b == batch]
                          for shard in steps for batch in range(len(setting.shards[0]))})
        assert all(other == found[0] for other in found), seed


@some_seeds
def test_slack_0_orders_batches_that_share_rows_alike(seeds):
    for seed in seeds:
        setting = draw(seed)
        setting.slack, setting.joint = 0, frozenset()
        found = [dict(run(setting, seed, schedule).steps) for schedule in range(4)]
        assert all(other == found[0] for other in found), seed
        for steps in found[0].values():
            assert [step[0][1] for _, step in steps] == sorted(step[0][1] for _, step in steps)


@some_seeds
def test_a_joint_batch_makes_one_step_of_all_workers_sums(seeds):
    for seed in seeds:
        setting = draw(seed)
        setting.slack, setting.skips = 0, 0.0
        setting.n_clocks = [3] * setting.n_workers
        done, by_node = run(setting, seed, seed), defaultdict(list)
        for worker in range(setting.n_workers):
            by_node[setting.roles.node_of_worker(worker)].append(worker)
        in_order = [worker for own in sorted(by_node.values()) for worker in own]
        for shard, steps in done.steps.items():
            for batch, step in steps:
                if batch in setting.joint:
                    assert [worker for worker, _ in step] == in_order, (seed, shard)
                else:
                    assert len(step) == 1


@some_seeds
def test_with_slack_0_a_node_pushes_and_pulls_once_for_all_its_workers(seeds):
    n_several = 0
    for seed in seeds:
        setting = draw(seed)
        setting.slack, setting.skips = 0, 0.0
        setting.n_clocks = [3] * setting.n_workers
        setting.joint = frozenset(range(len(setting.shards[0])))
        setting.shards = [setting.shards[0]] * setting.n_workers
        done, roles = run(setting, seed, seed), setting.roles
        nodes = {roles.node_of_worker(worker) for worker in range(setting.n_workers)}
        away = sum(node != roles.node_of_shard(shard) for node in nodes for own in setting.shards[0] for shard in own)
        n_several += len(nodes) > 1
        assert done.n_pushes == 3 * away, seed
        assert done.n_pulls == 3 * away, seed  # at the start all have the first rows; a clock asks for the next ones
    assert n_several > len(seeds) // 3


def test_nobody_waits_without_a_limit():
    """With infinite slack a worker ends though another never does anything."""
    for seed in SEEDS[:40]:
        setting = draw(seed)
        setting.slack = math.inf
        setting.n_clocks = [0] * setting.n_workers
        setting.n_clocks[0], setting.newest = 5, 0.0
        assert run(setting, seed, seed).finished == setting.n_workers


def test_without_a_limit_pushes_merge_what_came_while_the_last_was_under_way():
    """A node's workers make one update each, at the same time: the first goes by itself, the others as one sum."""
    proxy = Proxy([4, 5, 6], math.inf, [0])
    first = proxy.handle(Update(5, 0, 0, (0.5, 0.0)))
    assert first == [Push(Update(4, 0, 0, (0.5, 0.0)), (5,))]
    assert proxy.handle(Update(6, 0, 3)) == []
    assert proxy.handle(Update(4, 0, 1, (0.25, 1.0))) == []
    assert proxy.sent(first[0]) == [Send(5, Release(0))]
    assert proxy.released((0, 4)) == [Push(Update(4, 0, 1, (0.25, 1.0)), (4, 6))]


def test_a_rule_that_does_not_merge_gets_every_workers_push_by_itself_and_one_pull_serves_all():
    proxy = Proxy([4, 5, 6], math.inf, [0], merged=[])
    assert proxy.handle(Update(5, 0, 0, (0.5, 0.0))) == [Push(Update(5, 0, 0, (0.5, 0.0)), (5,))]
    assert proxy.handle(Update(6, 0, 3)) == [Push(Update(6, 0, 3), (6,))]
    assert proxy.handle(Update(4, 0, 1)) == [Push(Update(4, 0, 1), (4,))]
    assert proxy.handle(Read(5, 0, 1, 0)) == [Tell(Read(4, 0, 1, 0))]
    assert proxy.handle(Read(6, 0, 4, 0)) == []  # the same question serves it
    assert proxy.answered((0, 4), Ready(0, 1, 0)) == [Send(5, Ready(0, 1, 0)), Send(6, Ready(0, 4, 0))]


@some_seeds
def test_with_slack_every_update_is_a_step_of_its_own_where_the_rule_does_not_merge(seeds):
    n_steps = n_merged = 0
    for seed in seeds:
        setting = draw(seed)
        setting.slack, setting.merged = 1, frozenset()
        steps = [step for steps in run(setting, seed, seed).steps.values() for _, step in steps]
        assert all(len(step) == 1 for step in steps), seed
        setting.merged = None
        n_steps += len(steps)
        n_merged += sum(len(step) > 1 for steps in run(setting, seed, seed).steps.values() for _, step in steps)
    assert n_steps > 5 * len(seeds)
    assert n_merged >= len(seeds) // 20


def test_a_proxy_asks_again_for_its_reader_where_an_earlier_question_would_miss_its_own_update():
    proxy = Proxy([0, 1], 1, [0])
    proxy.handle(Clock(0, 0)), proxy.handle(Clock(1, 0))
    assert proxy.handle(Read(1, 0, 1, 0)) == [Send(1, Ready(0, 1, 0))]  # as old as it may be
    proxy.handle(Clock(0, 1)), proxy.handle(Clock(1, 1))
    assert proxy.handle(Read(0, 0, 2, 1)) == [Tell(Read(0, 0, 1, 1))]  # the first question
    assert proxy.handle(Update(1, 0, 2)) == [Push(Update(0, 0, 2), (1,))]
    assert proxy.handle(Read(1, 0, 2, 1)) == [Tell(Read(0, 0, 2, 1))]
    assert proxy.answered((0, 0), Ready(0, 1, 1)) == [Send(0, Ready(0, 2, 1))]
    assert proxy.answered((0, 0), Ready(0, 2, 2)) == [Send(1, Ready(0, 2, 2))]
