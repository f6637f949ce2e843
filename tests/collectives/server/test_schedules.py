"""Clients and keepers under random schedules: how old a read may be, in which order slack 0 applies, nothing is
lost."""

import math

import pytest

from tests.collectives.server.schedules import draw, run

SEEDS = range(400)


@pytest.mark.parametrize("first", SEEDS[::100])
def test_reads_are_as_new_as_the_slack_promises_and_every_update_is_applied_once(first):
    for seed in range(first, first + 100):
        setting = draw(seed)
        done = run(setting, seed, seed)
        assert done.finished == setting.n_workers
        made = set().union(*done.made)
        for worker, batch, clock, saw in done.reads:
            for shard, seen in saw.items():
                due = {m for m in made if m[1] == batch and shard in setting.shards[m[0]][batch]}
                must = {m for m in due if m[2] < clock - setting.slack}
                own = {m for m in due if m[0] == worker and m[2] < clock}
                assert seen >= must | (own if setting.slack else set()), (seed, worker, batch, clock)
                if not setting.slack:
                    assert seen == must, (seed, worker, batch, clock)
        for shard, steps in done.steps.items():
            applied = [(worker, batch, clock) for batch, step in steps for worker, clock in step]
            assert len(applied) == len(set(applied))
            assert set(applied) == {m for m in made if shard in setting.shards[m[0]][m[1]]}


def test_slack_0_makes_the_same_steps_under_every_schedule():
    """For each batch: those of different batches have no rows in common, or come in order at an iteration's end."""
    for seed in SEEDS[:80]:
        setting = draw(seed)
        setting.slack = 0
        found = []
        for schedule in range(4):
            steps = run(setting, seed, schedule).steps
            found.append({(shard, batch): [step for b, step in steps[shard] if b == batch]
                          for shard in steps for batch in range(len(setting.shards[0]))})
        assert all(other == found[0] for other in found), seed


def test_slack_0_orders_batches_that_share_rows_alike():
    for seed in SEEDS[:80]:
        setting = draw(seed)
        setting.slack, setting.joint = 0, frozenset()
        found = [dict(run(setting, seed, schedule).steps) for schedule in range(4)]
        assert all(other == found[0] for other in found), seed
        for steps in found[0].values():
            assert [step[0][1] for _, step in steps] == sorted(step[0][1] for _, step in steps)


def test_a_joint_batch_makes_one_step_of_all_workers_sums():
    for seed in SEEDS[:80]:
        setting = draw(seed)
        setting.slack, setting.skips = 0, 0.0
        setting.n_clocks = [3] * setting.n_workers
        for shard, steps in run(setting, seed, seed).steps.items():
            for batch, step in steps:
                if batch in setting.joint:
                    assert [worker for worker, _ in step] == list(range(setting.n_workers)), (seed, shard)
                else:
                    assert len(step) == 1


def test_nobody_waits_without_a_limit():
    """With infinite slack a worker ends though another never does anything."""
    for seed in SEEDS[:40]:
        setting = draw(seed)
        setting.slack = math.inf
        setting.n_clocks = [0] * setting.n_workers
        setting.n_clocks[0] = 5
        assert run(setting, seed, seed).finished == setting.n_workers
