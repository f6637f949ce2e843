"""The job files on a real SLURM of two pretended nodes: time limit, requeue, preemption; benchmark; scaling table."""

import json
import re

import pytest

from tests.slurm.cluster import wait_until
from tests.slurm.runs import ROOT, Job, write

LIVES, MAX_ITER, LONG = 4, 700, 200
TRAIN = ["--nodes=2", "--ntasks-per-node=1", str(ROOT / "jobs/train.sbatch"), "-solver", "solver.prototxt",
         "-threads", "1"]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, cluster, databases):
    """Two runs, one under srun and one under mpirun, that meet the time limit, a requeue and a preemption; and
    one that meets nothing."""
    solver = {"databases": databases, "display": 20, "max_iter": MAX_ITER, "layer": "Pace"}
    folders = {name: write(tmp_path_factory.mktemp(name), **solver) for name in ("srun", "mpirun", "whole")}
    jobs = {name: Job(cluster, folders[name], ["--time=10", "--signal=B:USR1@45", *TRAIN], SCAFFE_LAUNCHER=name,
                      PACE_LIVES=str(LIVES), SCAFFE_SHOW_BINDING="1") for name in ("srun", "mpirun")}
    _has_trained(jobs["srun"], 1)
    cluster.run("scancel", "--signal=HUP", jobs["srun"].id)
    jobs["srun"].says("Snapshotting solver state", LONG)
    meets = {1: lambda job: cluster.run("scontrol", "update", f"jobid={job.id}", "timelimit=1"),
             2: lambda job: cluster.run("scontrol", "requeue", job.id)}
    for life, event in meets.items():
        for job in jobs.values():
            job.says(f"start {life} of job", LONG)
            _has_trained(job, life)
            event(job)
        for job in jobs.values():
            job.says(f"start {life + 1} of job", LONG)
            cluster.run("scontrol", "update", f"jobid={job.id}", "timelimit=10")
    for job in jobs.values():
        _has_trained(job, LIVES - 1)
    cluster.run("sbatch", "--partition=urgent", "--nodes=2", "--ntasks-per-node=2", "--output=/dev/null",
                "--wrap=true")
    jobs["whole"] = Job(cluster, folders["whole"], TRAIN, PACE_LIVES="1")
    states = {name: job.ends(LONG) for name, job in jobs.items()}
    assert states == dict.fromkeys(jobs, "COMPLETED"), {name: job.text()[-3000:] for name, job in jobs.items()}
    return {name: (folders[name], job.text()) for name, job in jobs.items()}


def _has_trained(job, life):
    """The job is past its life's fast iterations."""
    wait_until(lambda: job.text().split(f"start {life} of job")[-1].count("lr = ") > 1, LONG,
               f"iterations in life {life}: {job.text()[-3000:]}")


@pytest.mark.parametrize("name", ["srun", "mpirun"])
def test_a_requeued_run_has_the_bits_of_a_whole_one(interrupted, name):
    folder, text = interrupted[name]
    whole, whole_text = interrupted["whole"]
    assert "Restoring" not in whole_text
    assert text.count("Restoring previous solver status") == LIVES - 1
    weights = f"run_iter_{MAX_ITER}.caffemodel"
    assert (folder / weights).read_bytes() == (whole / weights).read_bytes()
    assert text.count("Optimization Done.") == 1


def test_the_time_limit_and_a_preemption_leave_a_snapshot(interrupted):
    """Under srun. A preemption ends mpirun's daemons, so that its run may go on from an older snapshot."""
    lives = {name: re.split(r"start \d of job", interrupted[name][1])[1:] for name in ("srun", "mpirun")}
    for name, n in (("srun", 0), ("srun", 2), ("mpirun", 0)):
        stopped = re.search(r"snapshot and stop after iteration (\d+)", lives[name][n])[1]
        assert f"Restoring previous solver status from run_iter_{stopped}.solverstate" in lives[name][n + 1]
    assert all("goes back into the queue" in life[n] for life in lives.values() for n in (0, 2))


def test_a_hang_up_snapshots_and_goes_on(interrupted):
    life = re.split(r"start \d of job", interrupted["srun"][1])[1]
    assert life.count("Snapshotting solver state") == 2
    assert life.count("snapshot and stop") == 1


def test_srun_is_chosen_where_ranks_meet_under_it(interrupted):
    assert "started by srun" in interrupted["whole"][1]


def test_ranks_are_bound(interrupted):
    lines = re.findall(r"rank (\d) on (n\d): cores ([\d,-]+), GPUs (\S+)", interrupted["srun"][1])
    assert {(rank, node) for rank, node, _, _ in lines} == {("0", "n0"), ("1", "n1")}
    assert all(cores in ("0", "1") for _, _, cores, _ in lines)


def test_bench_reduce(tmp_path, cluster):
    job = Job(cluster, tmp_path, ["--nodes=2", "--ntasks-per-node=2", str(ROOT / "jobs/bench_reduce.sbatch"), "reduce",
                                  "-m", "4:65536", "-s", "128", "-a", "mpi,C,CB-2", "-i", "5", "-x", "1"])
    assert job.ends(LONG) == "COMPLETED", job.text()
    rows = json.loads((tmp_path / f"bench-{job.id}.json").read_text())
    assert rows["ranks"] == 4
    assert {row["algorithm"] for row in rows["rows"]} == {"mpi", "C", "CB-2"}
    assert "65536" in (tmp_path / f"bench-{job.id}.txt").read_text()


def test_scaling(tmp_path, cluster, databases):
    write(tmp_path, databases, display=10, max_iter=60, more="snapshot_after_train: false")
    job = Job(cluster, tmp_path, ["--nodes=2", "--ntasks-per-node=1", str(ROOT / "jobs/scaling.sbatch"), "-solver",
                                  "solver.prototxt", "-threads", "1"])
    assert job.ends(LONG) == "COMPLETED", job.text()
    folder = tmp_path / f"scaling-{job.id}"
    rows = json.loads((folder / "scaling.json").read_text())
    assert [(row["scaling"], row["n_ranks"], row["images_per_iteration"]) for row in rows] == [
        ("strong", 1, 16), ("strong", 2, 16), ("weak", 1, 16), ("weak", 2, 32)]
    assert rows[0]["speedup"] == 1 and all(row["iterations_per_second"] > 0 for row in rows)
    assert len((folder / "scaling.txt").read_text().splitlines()) == 5
    assert "weak, perfect" in (folder / "scaling.svg").read_text()
