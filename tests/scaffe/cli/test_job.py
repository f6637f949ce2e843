"""Which cores a rank is bound to: those near its GPU, on described machines."""

import os

import pytest

from scaffe.cli import job
from scaffe.collectives import launch

SOCKETS = [frozenset(range(8)), frozenset(range(8, 16))]
PAIRS = [frozenset((c, c + 4)) for c in (0, 1, 2, 3)] + [frozenset((c, c + 4)) for c in (8, 9, 10, 11)]


@pytest.mark.parametrize(("near", "expected"), [
    ([SOCKETS[0], SOCKETS[1]], [{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}]),
    ([SOCKETS[0]] * 2 + [SOCKETS[1]] * 2, [{0, 4, 1, 5}, {2, 6, 3, 7}, {8, 12, 9, 13}, {10, 14, 11, 15}]),
    ([SOCKETS[0], SOCKETS[1], SOCKETS[0]], [{0, 4, 1, 5}, SOCKETS[1], {2, 6, 3, 7}]),
    ([SOCKETS[1]] * 3, [{8, 12}, {9, 13}, {10, 14, 11, 15}]),
    ([SOCKETS[1]] * 5, [SOCKETS[1], {8, 12}, {9, 13}, {10, 14}, {11, 15}]),
    ([frozenset()] * 2, [SOCKETS[0], SOCKETS[1]])])
def test_near_cores_are_shared_out_and_hardware_threads_stay_together(near, expected):
    assert job.shares(near, reversed(PAIRS)) == [frozenset(cores) for cores in expected]


def test_a_job_that_may_not_use_the_near_cores_keeps_its_own():
    assert job.shares([SOCKETS[1], SOCKETS[0]], PAIRS[:4]) == [SOCKETS[0], SOCKETS[0]]


@pytest.mark.parametrize(("text", "cores"), [("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}), ("\n", set()), ("5", {5})])
def test_lists_of_cores(text, cores):
    assert job.parse_list(text) == cores


def test_what_linux_says_is_found_by_the_bus_id_that_cuda_gives(tmp_path):
    (tmp_path / "0000:3b:00.0").mkdir()
    (tmp_path / "0000:3b:00.0" / "local_cpulist").write_text("0-1,4\n")
    assert job.near_card("00000000:3B:00.0", tmp_path) == {0, 1, 4}
    assert job.near_card("0000:3C:00.0", tmp_path) == frozenset()


def test_hardware_threads_of_one_core_are_a_group_of_those_allowed(tmp_path):
    for core, together in ((0, "0,2"), (1, "1,3"), (2, "0,2")):
        (tmp_path / f"cpu{core}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}" / "topology" / "thread_siblings_list").write_text(together)
    assert sorted(job.siblings([0, 1, 2, 5], tmp_path), key=min) == [{0, 2}, {1}, {5}]


@pytest.mark.parametrize(("variables", "n_ranks"), [
    ({"OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, 3), ({"SLURM_STEP_TASKS_PER_NODE": "8(x3),4", "SLURM_NODEID": "2"}, 8),
    ({"SLURM_STEP_TASKS_PER_NODE": "8(x3),4", "SLURM_NODEID": "3"}, 4), ({"SLURM_STEP_TASKS_PER_NODE": "2"}, None),
    ({"SLURM_STEP_TASKS_PER_NODE": "8(x3),4", "SLURM_NODEID": "4"}, None), ({}, None),
    ({"SLURM_STEP_TASKS_PER_NODE": "many", "SLURM_NODEID": "0"}, None)])
def test_how_many_ranks_a_node_has(variables, n_ranks):
    assert launch.node_n_ranks(variables) == n_ranks


def test_a_rank_binds_itself_only_where_a_job_asks_for_it(monkeypatch):
    bound, there = [], {"SCAFFE_BIND": "gpu", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: frozenset(range(16)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: bound.append(cores))
    monkeypatch.setattr(job.device, "missing", lambda: "")
    monkeypatch.setattr(job.device, "count", lambda: 2)
    monkeypatch.setattr(job.device, "bus_id", lambda number: str(number))
    monkeypatch.setattr(job, "near_card", lambda bus_id: SOCKETS[1 - int(bus_id)])
    monkeypatch.setattr(job, "siblings", lambda allowed: PAIRS)
    assert job.bind("all", 0, there) == "rank 0 of its node: cores 8,9,10,11,12,13,14,15, near GPU 0"
    assert job.bind("1,0", 1, there) == "rank 1 of its node: cores 8,9,10,11,12,13,14,15, near GPU 0"
    assert bound == [SOCKETS[1]] * 2
    for gpus, environment in (("", there), ("all", {}), ("all", {"SCAFFE_BIND": "gpu"}), ("3", there), ("x", there),
                              ("all", there | {"SCAFFE_BIND": "0"})):
        assert job.bind(gpus, 0, environment) == ""
    assert len(bound) == 2


@pytest.mark.parametrize(("variables", "policy"), [
    ({"OMPI_COMM_WORLD_LOCAL_SIZE": "5"}, "PASSIVE"), ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, None), ({}, None),
    ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8", "OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
    ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8", "GOMP_SPINCOUNT": "10"}, None)])
def test_threads_of_ranks_that_have_no_two_cores_each_sleep_between_kernels(monkeypatch, variables, policy):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    job.sleep_between_kernels(variables)
    assert variables.get("OMP_WAIT_POLICY") == policy
