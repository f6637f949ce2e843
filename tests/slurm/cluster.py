"""A SLURM of its own on this machine, of Debian's packages: munged, slurmctld and a slurmd for each pretended node.

As a command it runs another one inside: ``python tests/slurm/cluster.py bash``. Needs root, slurm-wlm and munge.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "setpriv")
START_SECONDS, STOP_SECONDS = 60, 20
GPUS = ("/dev/null", "/dev/zero")  # SLURM wants character devices; nobody opens these

CONFIGURATION = """ClusterName=pretended
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
TmpFS={folder}/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=5,bf_interval=5
PartitionName=batch Nodes=ALL Default=YES MaxTime=60 PriorityTier=1 GraceTime=30 State=UP
PartitionName=urgent Nodes=ALL MaxTime=60 PriorityTier=2 PreemptMode=OFF State=UP
"""


def missing() -> str:
    """Why no SLURM can be started here, or nothing."""
    if os.geteuid() != 0:
        return "only root can start SLURM's daemons"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Look again and again until ``holds()``. Raises TimeoutError that says what was waited for."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s still not: {what}")
        time.sleep(0.2)


class Cluster:
    """Pretended nodes n0, n1, ... of so many CPUs and two pretended GPUs, each a slurmd on this machine.

    Partition ``urgent`` preempts the default one, which gives its jobs a grace time of 30 s.
    """

    def __init__(self, n_nodes: int = 2, n_cpus: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self._nodes = [f"n{i}" for i in range(n_nodes)]
        self._n_cpus = n_cpus
        self._can_name_hosts = subprocess.call(["unshare", "--uts", "true"], stderr=subprocess.DEVNULL) == 0
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self) -> Cluster:
        try:
            self._configure()
            self._start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                        f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                        f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")
            wait_until((self.folder / "munge.socket").exists, START_SECONDS, "munged's socket")
            self._start("slurmctld", "-D", "-c")
            for name in self._nodes:
                named = ("unshare", "--uts", "sh", "-c", f"hostname {name} && exec slurmd -D -N {name}")
                self._start(*(named if self._can_name_hosts else ("slurmd", "-D", "-N", name)))
            wait_until(self._all_idle, START_SECONDS, f"all nodes idle (logs in {self.folder})")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()

    def run(self, *command: str, check: bool = True) -> str:
        """A SLURM command's output. Raises RuntimeError with what it said if it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def stop(self) -> None:
        """Cancel what runs, end the daemons and whatever they started, remove the folder."""
        self.run("scancel", "--user=root", check=False)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self._descendants():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configure(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        (self.folder / "munge.key").chmod(0o400)
        ports = _free_ports(len(self._nodes) + 1)
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(folder=self.folder, host=host, ports=ports)
        for name, port in zip(self._nodes, ports[1:]):
            (self.folder / f"spool-{name}").mkdir()
            (self.folder / f"tmp-{name}").mkdir()
            node_host = name if self._can_name_hosts else host
            text += (f"NodeName={name} NodeHostname={node_host} NodeAddr=127.0.0.1 Port={port} CPUs={self._n_cpus} "
                     f"Gres=gpu:{len(GPUS)} State=UNKNOWN\n")
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={path}\n" for path in GPUS))

    def _start(self, *command: str) -> None:
        log = (self.folder / "daemons.log").open("ab")
        self._daemons.append(subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *command], env=self.environment,
                                              stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _all_idle(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-p", "batch", "-o", "%t", check=False).split()
        return states == ["idle"] * len(self._nodes)

    def _descendants(self) -> list[int]:
        """Everything left that was started with this cluster's configuration, but for this process."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # gone by now
        return [pid for pid in found if pid != os.getpid()]


def _free_ports(n_ports: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n_ports)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    reason = missing()
    if reason:
        sys.exit(f"no SLURM here: {reason}")
    with Cluster() as cluster:
        sys.exit(subprocess.call(sys.argv[1:] or ["bash"], env=cluster.environment))
