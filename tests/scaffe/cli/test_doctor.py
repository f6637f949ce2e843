"""What doctor concludes from what it finds, and once what it finds here."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from scaffe.cli.doctor import job, machine, ucx
from scaffe.cli.doctor.machine import ABSENT, BROKEN, FINE, SLOWER, Finding, table
from tests.mpirun import ROOT, mpirun

RANK = {"n_cores": 2, "is_right": True}


def judged(code=0, errors="", jobs=1, n_ranks=2, threads=True, **rank):
    said = {"n_ranks": n_ranks, "n_nodes": 1, "threads": threads, "ranks": [{**RANK, **rank}] * n_ranks,
            "is_aware": False, "why": "it cannot be asked", "is_open_mpi": True}
    output = "" if code else "\n".join(["a line of the launcher's", *[json.dumps(said)] * jobs])
    return list(job.judge_launcher("/usr/bin/mpirun", lambda words: (code, output, errors)))


def test_a_job_that_works():
    assert [finding.state for finding in judged()] == [FINE, FINE]


@pytest.mark.parametrize("errors, to_type", [
    ("----\nprterun has detected an attempt to run as root.\n\nmore words\n",
     "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"),
    ("There are not enough slots available in the system\n",
     "export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"),
    ("something else\n----\n", ""),
    ("", ""),
])
def test_a_launcher_that_refuses(errors, to_type):
    [found] = judged(code=1, errors=errors)
    assert (found.state, found.to_type) == (BROKEN, to_type)
    assert "ends with code 1: " in found.said and "\n" not in found.said
    assert errors.replace("-", "").strip().split("\n")[0] in found.said


def test_a_launcher_of_another_mpi():
    [found] = judged(jobs=2, n_ranks=1)
    assert found.state == BROKEN and "starts 2 jobs of one rank" in found.said and "MPI4PY_LIBMPI" in found.to_type


def test_sums_that_are_wrong():
    [found] = judged(is_right=False)
    assert found.state == BROKEN and not found.to_type


def test_what_costs_speed(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [(found.state, found.subject) for found in judged(threads=False, n_cores=1)] == [
        (FINE, "mpirun"), (SLOWER, "threads"), (SLOWER, "binding")]
    assert [found.state for found in judged(n_cores=1, n_ranks=8)] == [FINE, FINE]  # a core for each


def test_messages_are_judged_where_there_are_gpus(monkeypatch):
    assert "messages" not in [finding.subject for finding in judged()]
    monkeypatch.setattr(job, "gpu_names", lambda: ["a card"])
    monkeypatch.setattr(ucx, "wheel", lambda: None)
    assert [(finding.state, finding.to_type) for finding in judged() if finding.subject == "messages"] == [
        (ABSENT, ucx.WHEEL)]


def ucx_wheel(folder, monkeypatch, module):
    (folder / "libucx" / "lib" / "ucx").mkdir(parents=True)
    (folder / "libucx" / "__init__.py").touch()
    (folder / "libucx" / "lib" / "ucx" / module).touch()
    monkeypatch.syspath_prepend(folder)


def test_a_ucx_that_is_there_and_not_used(tmp_path, monkeypatch):
    ucx_wheel(tmp_path, monkeypatch, "libuct_cuda.so.0")
    lib = f"{tmp_path}/libucx/lib"
    found = ucx.judge(False, "MPIX_Query_cuda_support says no", True, ucx.wheel())
    assert (found.state, found.said) == (SLOWER, "leave GPUs through host memory, since the MPI is not CUDA-aware: "
                                         "MPIX_Query_cuda_support says no; Open MPI does not use the UCX in " + lib)
    assert found.to_type == (
        f"export LD_PRELOAD={lib}/libucm.so.0:{lib}/libucs.so.0:{lib}/libuct.so.0:{lib}/libucp.so.0 "
        f"UCX_MODULE_DIR={lib}/ucx OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any "
        "OMPI_MCA_opal_common_ucx_devices=any SCAFFE_CUDA_AWARE=1")


def test_a_ucx_without_cuda_is_none(tmp_path, monkeypatch):
    ucx_wheel(tmp_path, monkeypatch, "libuct_cma.so.0")
    assert ucx.wheel() is None


@pytest.mark.parametrize("is_aware, is_open_mpi, state", [(True, True, FINE), (False, False, SLOWER)])
def test_messages_with_nothing_to_set(tmp_path, is_aware, is_open_mpi, state):
    found = ucx.judge(is_aware, "why", is_open_mpi, tmp_path)
    assert (found.state, found.to_type) == (state, "")


@pytest.mark.parametrize("words, state", [
    ("MPI plugin types are... none pmi2 pmix specific pmix plugin versions available: pmix_v4", FINE),
    ("MPI plugin types are... none cray_shasta pmi2", FINE),
    ("MPI plugin types are... none", SLOWER),
])
def test_srun(words, state):
    assert job.judge_srun("/usr/bin/srun", words.split()).state == state


@pytest.mark.parametrize("given, who", [
    ({"OMP_NUM_THREADS": "3,2", "SLURM_CPUS_PER_TASK": "1"}, "3, as OMP_NUM_THREADS says"),
    ({"OMP_NUM_THREADS": "x", "SLURM_CPUS_PER_TASK": "1"}, "1, as SLURM_CPUS_PER_TASK says"),
    ({"SCAFFE_THREADS": "2", "OMP_NUM_THREADS": "3"}, "2, as SCAFFE_THREADS says"), ({}, "2, as the cores say"),
])
def test_who_says_how_many_threads(monkeypatch, given, who):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(5)))
    monkeypatch.setattr(machine.control_groups, "cpu_quota", lambda: 2)
    quota, threads = machine.check_threads(given)
    assert (quota.said, threads.state) == ("the control group limits its processes to the time of 2", FINE)
    assert threads.said == (f"{who}; the first counts of -threads or caffe.set_threads, SCAFFE_THREADS, "
                            "OMP_NUM_THREADS, SLURM_CPUS_PER_TASK, the cores")
    assert len(list(machine.check_threads({"SCAFFE_THREADS": "many"}))) == 1


def test_values_that_are_passed_over():
    given = {"OMP_NUM_THREADS": "abc", "SLURM_CPUS_PER_TASK": "4,2"}
    found = list(machine.check_settings(given))
    assert [(each.state, each.to_type) for each in found] == [(SLOWER, f"unset {name}") for name in given]
    assert [each.said.split(":")[0] for each in found] == ["OMP_NUM_THREADS=abc", "SLURM_CPUS_PER_TASK=4,2"]


def test_a_cache_that_others_can_write(monkeypatch, tmp_path):
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("SCAFFE_CACHE", str(tmp_path / "open"))
    monkeypatch.setattr(machine.tempfile, "tempdir", str(tmp_path))
    cache, temporary = machine.check_folders()
    assert cache.state == SLOWER and str(tmp_path / "open") in cache.said and "SCAFFE_CACHE" in cache.to_type
    assert temporary.subject == "temporary"


def test_the_table():
    assert table([Finding(FINE, "one", "said"), Finding(ABSENT, "other", "gone", "pip install it")]) == [
        "ok      one    said", "absent  other  gone", "               > pip install it"]
    assert table([]) == []


def test_it_is_no_rank_of_a_job(monkeypatch):
    monkeypatch.setenv("PMIX_RANK", "0")
    done = subprocess.run([sys.executable, "-m", "scaffe", "doctor"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "scaffe: doctor starts ranks by itself: run it without mpirun or srun"


@pytest.mark.mpi_job
def test_here():
    mpirun(2)
    done = subprocess.run([sys.executable, "-m", "scaffe", "doctor"], cwd=ROOT, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout
    states = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines() if ">" not in line}
    assert states["oneDNN"] == states["mpirun"] == states["cores"] == FINE
