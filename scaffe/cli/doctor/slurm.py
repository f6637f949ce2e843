"""SLURM: how ``srun`` can start the ranks of this MPI."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from scaffe.cli.doctor.finding import FINE, SLOWER, Finding

SECONDS = 20


def check() -> Iterator[Finding]:
    """Whether srun, where there is one, speaks PMIx or PMI-2, which MPI's ranks need to find one another."""
    srun = shutil.which("srun")
    if srun is None:
        return
    try:
        done = subprocess.run([srun, "--mpi=list"], capture_output=True, text=True, timeout=SECONDS, check=False)
        kinds = (done.stdout + done.stderr).split()
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(SLOWER, "srun", f"{srun} does not answer: {error}")
        return
    yield judge(srun, kinds)


def judge(srun: str, kinds: list[str]) -> Finding:
    """What ``srun --mpi=list`` means.

    Args:
        srun: path of the program.
        kinds: the words it printed.
    """
    fitting = [kind for kind in ("pmix", "pmi2") if any(word.startswith(kind) for word in kinds)]
    if fitting:
        return Finding(FINE, "srun", f"{srun} --mpi={fitting[0]}")
    return Finding(SLOWER, "srun", f"{srun} has neither pmix nor pmi2: ranks started by it do not find one another",
                   "sbatch jobs/mpirun.sh ...")
