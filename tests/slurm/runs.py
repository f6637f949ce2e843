"""Nets and solvers of the SLURM tests, jobs submitted and waited for."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.slurm.cluster import Cluster, wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).parent

NET = """name: "small"
layer {{ name: "d" type: "Data" top: "data" top: "label"
  data_param {{ source: "{source}" batch_size: 16 backend: LMDB }} transform_param {{ scale: 0.00390625 }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" param {{ lr_mult: 1 }} param {{ lr_mult: 2 }}
  inner_product_param {{ num_output: 24 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }}
layer {{ name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }}
{between}
layer {{ name: "ip2" type: "InnerProduct" bottom: "{last}" top: "ip2"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""
PYTHON_LAYER = """layer {{ name: "own" type: "Python" bottom: "ip1" top: "own"
  python_param {{ module: "{module}" layer: "{layer}" param_str: "{param}" }} }}"""
SOLVER = """net: "net.prototxt" base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" display: {display} max_iter: {max_iter}
snapshot_prefix: "run" random_seed: 7 {more}
"""


def write(folder: Path, databases: Path, display: int, max_iter: int, more: str = "", layer: str = "",
          param: str = "") -> Path:
    """A folder with solver.prototxt and its net, with a layer of tests/slurm in the middle if one is named."""
    folder.mkdir(exist_ok=True)
    own = PYTHON_LAYER.format(module=layer.lower(), layer=layer, param=param) if layer else ""
    net = NET.format(source=databases / "train", between=own, last="own" if layer else "ip1")
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(SOLVER.format(display=display, max_iter=max_iter, more=more))
    return folder


# Of SLURM's states; a job that waits, starts (CONFIGURING), runs, ends or goes back into the queue shows others.
ENDS = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")


class Job:
    """A job file of jobs/ submitted from a folder; its output goes to job.log there."""

    def __init__(self, cluster: Cluster, folder: Path, words: list[str], **environment: str) -> None:
        """`words`: sbatch's options, the file's name, its arguments."""
        self._cluster, self.log = cluster, folder / "job.log"
        settings = {"PYTHON": sys.executable, "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PYTHONPATH": str(HERE)} | environment
        exported = ",".join(["ALL", *(f"{name}={value}" for name, value in settings.items())])
        self.id = cluster.run("sbatch", "--parsable", f"--chdir={folder}", f"--output={self.log}",
                              f"--export={exported}", *words)

    def text(self) -> str:
        """What the job has said so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def says(self, words: str, seconds: float) -> None:
        """Wait until the job has said so. Raises TimeoutError with the end of what it said instead."""
        try:
            wait_until(lambda: words in self.text(), seconds, f"{words!r} in {self.log}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.state()}\n{self.text()[-3000:]}") from error

    def state(self) -> str:
        """SLURM's word for it: RUNNING, COMPLETED, ..."""
        words = self._cluster.run("scontrol", "-o", "show", "job", self.id).split()
        return next(word.removeprefix("JobState=") for word in words if word.startswith("JobState="))

    def ends(self, seconds: float) -> str:
        """Wait for its end; returns that state."""
        state = ""

        def has_ended() -> bool:
            nonlocal state
            state = self.state()
            return state in ENDS

        try:
            wait_until(has_ended, seconds, f"the end of job {self.id}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}, but {state} ({self.log}: {self.text()[-2000:]})") from error
        return state
