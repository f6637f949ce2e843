"""Whether several ranks can train here: MPI, a launcher of the same MPI, a small job that really runs, SLURM's srun."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scaffe.cli.doctor import ucx
from scaffe.cli.doctor.machine import BROKEN, FINE, SLOWER, Finding, gpu_names

N_RANKS = 2
JOB_SECONDS = 60
KNOWN = (
    ("run as root", "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"),
    ("not enough slots", "export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"),
)
"""Messages of a launcher that refuses, and the command line that helps."""


def check_job() -> Iterator[Finding]:
    """Which MPI there is, and whether two ranks of it start, share memory and add up right."""
    from scaffe.collectives.launch import describe_mpi

    library, launcher = describe_mpi().removeprefix("MPI: "), find_launcher()
    if library.startswith("none"):
        yield Finding(BROKEN, "MPI", library, "pip install 'scaffe[mpi]'")
        return
    yield Finding(FINE, "MPI", library)
    if launcher is None:
        yield Finding(BROKEN, "mpirun", "no mpirun beside this Python or on PATH", "pip install 'scaffe[mpi]'")
        return
    yield from judge_launcher(launcher, _run)


def find_launcher() -> str | None:
    """The ``mpirun`` beside this Python, else the first one on PATH; None if there is none."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


def judge_launcher(launcher: str, run: Callable[[list[str]], tuple[int, str, str]]) -> Iterator[Finding]:
    """Run a small job by this ``mpirun``, and judge its result.

    ``run`` runs a command line; it returns the exit code, standard output and standard error.
    """
    code, output, errors = run([launcher, "-np", str(N_RANKS), sys.executable, "-m", "scaffe.cli.doctor.probe"])
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if code or not found:
        yield _refusal(launcher, code, errors)
    elif len(found) > 1:
        yield Finding(BROKEN, "mpirun", f"{launcher} starts {len(found)} jobs of one rank: it belongs to another "
                      "MPI than the library above", "export MPI4PY_LIBMPI=/the/libmpi.so/of/that/mpirun")
    elif not all(rank["is_right"] for rank in found[0]["ranks"]):
        yield Finding(BROKEN, "mpirun", f"{launcher}: {N_RANKS} ranks add up arrays wrongly")
    else:
        yield Finding(FINE, "mpirun", f"{launcher}: {N_RANKS} ranks start, share memory and add up right")
        yield from _quality(found[0])


def _quality(found: dict[str, Any]) -> Iterator[Finding]:
    """Findings that cost speed in a job that works."""
    if not found["threads"]:
        yield Finding(SLOWER, "threads", "this MPI does not grant MPI_THREAD_MULTIPLE: nothing overlaps with computing")
    least, there = min(rank["n_cores"] for rank in found["ranks"]), os.cpu_count() or 1
    if least == 1 and there >= 2 * found["n_ranks"]:
        yield Finding(SLOWER, "binding", f"mpirun binds each rank to 1 of {there} cores",
                      "export PRTE_MCA_hwloc_default_binding_policy=none")
    else:
        yield Finding(FINE, "binding", f"a rank of {found['n_ranks']} may use {least} of {there} cores")
    if gpu_names():
        yield ucx.judge(found["is_aware"], found["why"], found["is_open_mpi"], ucx.wheel())


def _refusal(launcher: str, code: int, errors: str) -> Finding:
    lines = [line.strip() for line in errors.splitlines() if any(map(str.isalnum, line))]
    text = " ".join(lines)
    to_type = next((line for words, line in KNOWN if words in text), "")
    said = next((line for line in lines if any(words in line for words, _ in KNOWN)), lines[-1] if lines else "")
    return Finding(BROKEN, "mpirun", f"{launcher} ends with code {code}: {said or 'it says nothing'}", to_type)


def _run(words: list[str]) -> tuple[int, str, str]:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=JOB_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return 124, "", f"no end within {JOB_SECONDS} s"
    except OSError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


SRUN_SECONDS = 20


def check_srun() -> Iterator[Finding]:
    """Whether srun, where there is one, speaks PMIx or PMI-2, which MPI's ranks need to find one another."""
    srun = shutil.which("srun")
    if srun is None:
        return
    try:
        done = subprocess.run([srun, "--mpi=list"], capture_output=True, text=True, timeout=SRUN_SECONDS, check=False)
        kinds = (done.stdout + done.stderr).split()
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(SLOWER, "srun", f"{srun} does not answer: {error}")
        return
    yield judge_srun(srun, kinds)


def judge_srun(srun: str, kinds: list[str]) -> Finding:
    """Judge the words that ``srun --mpi=list`` printed."""
    fitting = [kind for kind in ("pmix", "pmi2") if any(word.startswith(kind) for word in kinds)]
    if fitting:
        return Finding(FINE, "srun", f"{srun} --mpi={fitting[0]}")
    return Finding(SLOWER, "srun", f"{srun} has neither pmix nor pmi2: ranks started by it do not find one another",
                   "sbatch jobs/mpirun.sh ...")
