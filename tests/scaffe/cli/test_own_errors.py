"""An error that a rank other than 0 has alone, before MPI starts, is said without waiting for rank 0."""

import os
import re
import subprocess
import sys

import pytest

from tests.mpirun import mpirun

HOLD = """
import mmap, sys
file = open(sys.argv[1], "rb")
held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print(flush=True)
input()
"""
MAIN = ("import sys; from scaffe.cli import main as cli; cli.ROOT_SPEAKS_FIRST_SECONDS = 1000; "
        "sys.exit(cli.main(sys.argv[1:]))")


@pytest.mark.parametrize(("variable", "words", "code", "said"), [
    ("OMPI_COMM_WORLD_RANK", ["trian"], 2, "scaffe: rank 1: unknown command 'trian'; did you mean train?\n"),
    ("PMI_RANK", ["upgrade_net_proto_text", "absent", "new"], 1,
     "scaffe: rank 1: absent: no such file or directory\n")])
def test_a_rank_does_not_wait_for_a_rank_0_that_has_come_to_mpi(tmp_path, variable, words, code, said):
    """Rank 0 is another child of the same process here, and has a file of mpi4py's mapped."""
    library = tmp_path / "mpi4py/MPI.so"
    library.parent.mkdir()
    library.write_bytes(b"1")
    others = {name: value for name, value in os.environ.items() if not name.endswith(("_RANK", "_PROCID"))}
    root = subprocess.Popen([sys.executable, "-c", HOLD, str(library)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            env=others | {variable: "0"}, text=True)
    try:
        assert root.stdout.readline() == "\n"
        done = subprocess.run([sys.executable, "-c", MAIN, *words], env=others | {variable: "1"}, capture_output=True,
                              text=True, timeout=200)
    finally:
        root.communicate("\n")
    assert (done.returncode, done.stderr) == (code, said)


LOSE_ROOT = """
import os, signal
from scaffe.collectives import Communicator
make = Communicator.__init__
def lose(self, comm=None, *arguments, **more):
    if comm is not None and comm.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    make(self, comm, *arguments, **more)
Communicator.__init__ = lose
"""


@pytest.mark.mpi_job
@pytest.mark.parametrize("n_ranks", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_ranks_do_not_wait_for_a_rank_0_that_is_lost_behind_mpi_init(n_ranks):
    command = [*mpirun(n_ranks), "--with-ft", "ulfm", sys.executable, "-c", LOSE_ROOT + MAIN]
    done = subprocess.run([*command, "bench", "reduce", "-m", "4:8"], capture_output=True, text=True, timeout=200)
    said = done.stderr.replace("\0", "")  # the launcher ends its own words with one
    assert "Traceback" not in said
    assert re.search(r"^scaffe: rank [12]: another rank was lost while MPI was starting$", said, re.M)


@pytest.mark.mpi_job
@pytest.mark.thorough
@pytest.mark.parametrize("flags", [(), ("--with-ft", "ulfm")])
def test_an_error_of_one_rank_alone_ends_a_job_whose_rank_0_is_in_mpi(tmp_path, flags):
    command = [sys.executable, "-c", MAIN, "bench", "reduce", "-m", "4:8", "-i", "1"]
    done = subprocess.run([*mpirun(1), *flags, *command, ":", "-np", "1", "-x", "SCAFFE_TABLE=none.json", *command],
                          capture_output=True, text=True, timeout=200, cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "scaffe: rank 1: table none.json: no such file or directory\n" in done.stderr
