"""Folders of launchers that were killed are removed, and no others."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from scaffe.collectives.leftovers import remove_left
from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT

BODY = ("import os, sys, time\nfrom scaffe.collectives import Communicator\nCommunicator.world()\n"
        "print('ready', os.environ['PMIX_SERVER_TMPDIR'], flush=True)\ntime.sleep(100 * (sys.argv[1] == 'stay'))\n")


def dead_pid():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def folder_of(parent, pid, kind="ompi", host="here", port=1, written=None):
    folder = parent / f"{kind}.{pid}"
    (folder / "1").mkdir(parents=True)
    contact = f"prterun-{host}-{pid}@0.0;tcp4://127.0.0.1:{port}"
    (folder / f"pmix.{host}.tool").write_text(f"{contact}\n5.0.11rc1\n{written or pid}\n")
    return folder


def start(parent, rank="0"):
    remove_left({"PMIX_SERVER_TMPDIR": str(parent / "ompi.1"), "PMIX_HOSTNAME": "here",
                 "OMPI_COMM_WORLD_LOCAL_RANK": rank})


@pytest.mark.parametrize("kind", ["ompi", "prted"])
def test_a_dead_launchers_folder_is_removed(tmp_path, kind):
    left = folder_of(tmp_path, dead_pid(), kind)
    start(tmp_path, "1")
    assert left.exists()
    start(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_may_be_in_use_stays(tmp_path):
    dead = dead_pid()
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = {folder_of(tmp_path, os.getpid()), folder_of(tmp_path, dead, "prted", host="there"),
                folder_of(tmp_path, dead, port=server.getsockname()[1]),
                folder_of(tmp_path / "elsewhere", dead).parent, folder_of(tmp_path, dead, "mine")}
        (tmp_path / "ompi.x").mkdir()
        (tmp_path / "prted.1").symlink_to(tmp_path / "elsewhere" / f"ompi.{dead}")
        start(tmp_path)
        assert set(tmp_path.iterdir()) == kept | {tmp_path / "ompi.x", tmp_path / "prted.1"}
    start(tmp_path / "none")


def test_a_folder_that_says_another_process_stays(tmp_path):
    kept = folder_of(tmp_path, dead_pid(), written=os.getpid())
    start(tmp_path)
    assert kept.exists()


@pytest.mark.mpi_job
def test_what_a_killed_mpirun_left_is_gone_after_the_next_start(tmp_path):
    def job(how):
        return subprocess.Popen([*mpirun(2), sys.executable, "-c", BODY, how], stdout=subprocess.PIPE, text=True,
                                env=os.environ | {"PYTHONPATH": str(ROOT), "PRTE_MCA_prte_tmpdir_base": str(tmp_path)})

    with job("stay") as killed:
        _, left = killed.stdout.readline().split()
        killed.send_signal(signal.SIGKILL)
    assert [str(path) for path in tmp_path.iterdir()] == [left]
    with job("end"):
        pass
    assert list(tmp_path.iterdir()) == []
