"""What pycaffe keeps for the whole process: mode, device, random stream, log."""

from __future__ import annotations

import os
import time
from typing import Any

from scaffe.errors import UserError
from scaffe.layers.base.layer import TEST, TRAIN
from scaffe.layers.base.random import Stream

__all__ = ["NCCL", "TEST", "TRAIN", "Timer", "has_nccl", "init_log", "kernels", "layer_type_list", "seed",
           "set_device", "set_mode_cpu", "set_mode_gpu", "set_multiprocess", "set_random_seed", "set_solver_count",
           "set_solver_rank", "solver_count", "solver_rank", "stream"]

_state: dict[str, Any] = {"solver_count": 1, "solver_rank": 0}


def kernels(n_threads: int = 0) -> Any:
    """What new nets compute on: the GPU after ``set_mode_gpu``, where there is one, else the CPU.

    Args:
        n_threads: of the CPU; 0: as before, at first all cores that this process may use.
    """
    from scaffe.nets.devices import Compute, load_kernels

    if _state.get("on_gpu"):
        return load_kernels(n_threads, Compute(gpus=str(_state.get("device", 0))))
    if n_threads or "kernels" not in _state:
        _state["kernels"] = load_kernels(n_threads or len(os.sched_getaffinity(0)))
    return _state["kernels"]


def stream() -> Stream:
    """The stream that fillers and layers of all nets draw from, seeded by the system unless ``set_random_seed`` did."""
    seed()
    found: Stream = _state["stream"]
    return found


def seed() -> int:
    """What the stream was seeded with."""
    if "seed" not in _state:
        set_random_seed(int.from_bytes(os.urandom(4), "little"))
    return int(_state["seed"])


def set_random_seed(seed: int) -> None:
    """Start the process's stream of random draws anew, for the nets that there are too."""
    if "stream" in _state:
        _state["stream"].restart(seed)
    else:
        _state["stream"] = Stream(seed)
    _state["seed"] = seed


def set_mode_cpu() -> None:
    """Nets that are made from now on compute on the CPU, as at first."""
    _state["on_gpu"] = False


def set_mode_gpu() -> None:
    """Nets that are made from now on compute on a GPU; where there is none, a warning, and on with the CPU."""
    from scaffe.layers.kernels import device
    from scaffe.log import warning

    missing = device.missing()
    _state["on_gpu"] = not missing
    if missing:
        warning(f"set_mode_gpu: {missing}; computing goes on on the CPU")


def set_device(device_id: int) -> None:
    """The GPU, counted from 0, for nets that are made from now on."""
    _state["device"] = int(device_id)


def set_solver_count(count: int) -> None:
    """Remembered and nothing else: ranks under mpirun take the place of Caffe's solver processes."""
    _state["solver_count"] = count


def solver_count() -> int:
    """What ``set_solver_count`` was told; 1 at first."""
    return int(_state["solver_count"])


def set_solver_rank(rank: int) -> None:
    """Remembered and nothing else."""
    _state["solver_rank"] = rank


def solver_rank() -> int:
    """What ``set_solver_rank`` was told; 0 at first."""
    return int(_state["solver_rank"])


def set_multiprocess(multiprocess: bool) -> None:
    """Nothing: ranks under mpirun take its place."""


def has_nccl() -> bool:
    """False: ranks talk over MPI."""
    return False


class NCCL:
    """Stands where pycaffe has its GPUs' collectives, to say what takes their place. Raises UserError when made."""

    def __init__(self, solver: Any, uid: str | bytes) -> None:
        self.new_uid()

    @staticmethod
    def new_uid() -> str:
        """Raises UserError."""
        raise UserError("there is no NCCL: start the script with mpirun -np N, and each rank's solver trains with "
                        "the others")


def layer_type_list() -> list[str]:
    """All layer types that a prototxt may name, sorted."""
    from scaffe.layers.base.layer import layer_types

    return layer_types.names()


def init_log(level: int = 0, stderr: bool = True) -> None:
    """Log on standard error from a level on: 0 all, 1 warnings, 2 errors; without ``stderr``, errors alone."""
    from scaffe import log

    log.set_level(level if stderr else log.ERROR)


class Timer:
    """A stopwatch: ``start``, ``stop``, then ``ms``."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.ms = 0.0

    def start(self) -> None:
        """Start."""
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Stop; ``ms`` then says how many milliseconds have passed."""
        self.ms = (time.perf_counter() - self._started) * 1e3
