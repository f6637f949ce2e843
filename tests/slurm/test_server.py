"""Strategies with a parameter server on a real SLURM of two pretended nodes: requeued in the middle, they go on."""

from tests.slurm.cluster import wait_until
from tests.slurm.runs import ROOT, Job, write

LONG, LIVES, MAX_ITER = 200, 2, 300
WAYS = {"srun": ["-strategy", "ssp", "-slack", "2"], "mpirun": ["-strategy", "downpour", "-n_sync", "2"]}


def test_ssp_and_downpour_go_on_after_a_requeue(tmp_path, cluster, databases):
    jobs = {}
    for launcher, flags in WAYS.items():
        folder = write(tmp_path / launcher, databases, display=20, max_iter=MAX_ITER, more="snapshot: 10", layer="Pace")
        jobs[launcher] = Job(cluster, folder, [
            "--nodes=2", "--ntasks-per-node=1", "--time=10", "--signal=B:USR1@45", str(ROOT / "jobs/train.sbatch"),
            "-solver", "solver.prototxt", "-threads", "1", *flags], SCAFFE_LAUNCHER=launcher, PACE_LIVES=str(LIVES))
    for job in jobs.values():
        wait_until(lambda job=job: job.text().count("Snapshotting solver state") > 2, LONG, "snapshots of a slow life")
        cluster.run("scontrol", "requeue", job.id)
    for launcher, job in jobs.items():
        job.says("start 2 of job", LONG)
        job.says("Optimization Done.", LONG)
        assert job.ends(LONG) == "COMPLETED", job.text()[-3000:]
        first, second = job.text().split("start 2 of job")
        assert "Optimization Done." not in first
        for words in ("Restoring previous solver status", "Staleness: ", "Shards, pulls and", "Optimization Done."):
            assert words in second, job.text()[-3000:]
        assert (tmp_path / launcher / f"run_iter_{MAX_ITER}.solverstate").exists()
