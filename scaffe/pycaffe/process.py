"""pycaffe's process-wide settings: mode, device, random stream, log."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from scaffe.collectives.launch import place
from scaffe.errors import UserError
from scaffe.flags import MOST_THREADS
from scaffe.layers.base.layer import TEST, TRAIN
from scaffe.layers.base.random import Stream
from scaffe.layers.python import SHARD

__all__ = ["NCCL", "TEST", "TRAIN", "Timer", "has_nccl", "init_log", "kernels", "layer_type_list", "seed",
           "set_device", "set_logging_disabled", "set_mode_cpu", "set_mode_gpu", "set_multiprocess", "set_precision",
           "set_random_seed", "set_solver_count",
           "set_solver_rank", "set_threads", "solver_count", "solver_rank", "stream"]

_state: dict[str, Any] = {}


def kernels(n_threads: int = 0) -> Any:
    """The backend for new nets: the GPU after ``set_mode_gpu`` if there is one, else the CPU.

    ``n_threads`` are CPU threads; 0 leaves the number as it is: at first that of ``set_threads``, else that of the
    environment or the cores.
    """
    from scaffe.nets.devices import Compute, load_kernels

    if _state.get("on_gpu"):
        return load_kernels(n_threads, Compute(gpus=str(_state.get("device", 0)), precision=precision()))
    if n_threads or "kernels" not in _state:
        _state["kernels"] = load_kernels(n_threads or _n_threads(), Compute(precision=precision()))
    return _state["kernels"]


def set_threads(n_threads: int) -> None:
    """Compute with ``n_threads`` CPU threads from now on, in all nets, whatever the environment says. Not in Caffe.

    Args:
        n_threads: 1 to 4096; 0 restores the default.

    Raises:
        UserError: another number.
    """
    is_whole = isinstance(n_threads, (int, np.integer)) and not isinstance(n_threads, bool)
    if not (is_whole and 0 <= n_threads <= MOST_THREADS):
        raise UserError(f"set_threads takes a whole number from 0 to {MOST_THREADS}; got {n_threads!r}")
    _state["n_threads"] = int(n_threads)
    if not _state.get("on_gpu"):
        kernels(_n_threads())


def chosen_threads() -> int:
    """The last argument of ``set_threads``; 0 at first."""
    return int(_state.get("n_threads", 0))


def _n_threads() -> int:
    from scaffe import threads
    from scaffe.collectives import launch

    n_ranks = launch.node_n_ranks() if launch.launched() else None
    return chosen_threads() or threads.n_threads(n_ranks or 1)


def precision() -> str:
    """The last argument of ``set_precision``; "fp32" at first."""
    return str(_state.get("precision", "fp32"))


def dtype() -> np.dtype:
    """Element type of activations in new nets. Raises UserError if the package that provides bfloat16 is missing."""
    from scaffe.nets.devices import Compute

    return Compute(precision=precision()).dtype


def set_precision(name: str) -> None:
    """Set the type of activations in nets created from now on: "fp32" (the default) or "bf16", on a GPU also "fp16".

    Parameters stay float32, and so do the arrays that show blobs. Not in Caffe.

    Losses are not scaled, as ``scaffe train -precision fp16`` does. Raises UserError for another name.
    """
    from scaffe.nets.devices import PRECISIONS

    if name not in PRECISIONS:
        raise UserError(f"set_precision takes {', '.join(PRECISIONS)}; got {name!r}")
    _state["precision"] = name
    _state.pop("kernels", None)


def stream() -> Stream:
    """The random stream of all nets' fillers and layers, seeded by ``set_random_seed``, else by the system."""
    seed()
    found: Stream = _state["stream"]
    return found


def seed() -> int:
    """The seed of the process's random stream."""
    if "seed" not in _state:
        set_random_seed(int.from_bytes(os.urandom(4), "little"))
    return int(_state["seed"])


def set_random_seed(seed: int) -> None:
    """Restart the process's random stream from ``seed``; this affects existing nets too."""
    if "stream" in _state:
        _state["stream"].restart(seed)
    else:
        _state["stream"] = Stream(seed)
    _state["seed"] = seed


def set_mode_cpu() -> None:
    """Create nets on the CPU from now on (the default)."""
    _state["on_gpu"] = False


def set_mode_gpu() -> None:
    """Create nets on a GPU from now on; if there is none, warn and stay on the CPU."""
    from scaffe.layers.kernels import device
    from scaffe.log import warning

    missing = device.missing()
    _state["on_gpu"] = not missing
    if missing:
        warning(f"set_mode_gpu: {missing}; computing goes on on the CPU")


def set_device(device_id: int) -> None:
    """Choose the GPU, counted from 0, for nets created from now on."""
    _state["device"] = int(device_id)


def set_solver_count(count: int) -> None:
    """Set what ``solver_count`` returns if this process is the only rank; ranks under mpirun know it themselves."""
    SHARD.give((_part()[0], int(count)))


def solver_count() -> int:
    """The number of parts of the training data: the ranks that train, without servers; 1 for one process."""
    SHARD.is_asked = True
    return _part()[1]


def set_solver_rank(rank: int) -> None:
    """Set what ``solver_rank`` returns if this process is the only rank (see ``set_solver_count``)."""
    SHARD.give((int(rank), _part()[1]))


def solver_rank() -> int:
    """The part, from 0 on, of the ``solver_count`` parts of the data that this rank reads."""
    SHARD.is_asked = True
    return _part()[0]


def _part() -> tuple[int, int]:
    """This rank's part and the number of parts before a solver is made, as the launcher gives them."""
    return SHARD.part or place() or (0, 1)


def set_multiprocess(multiprocess: bool) -> None:
    """Does nothing: ranks under mpirun take its place."""


def has_nccl() -> bool:
    """False: ranks talk over MPI."""
    return False


class NCCL:
    """Placeholder for pycaffe's NCCL: creating one raises a UserError that says what to use instead."""

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
    """Set what is logged on standard error.

    Args:
        level: the lowest level to log: 0 info, 1 warnings, 2 errors.
        stderr: False logs errors only.
    """
    from scaffe import log

    log.set_level(level if stderr else log.ERROR)


def set_logging_disabled() -> None:
    """Log errors only, as in FlowNet's Caffe."""
    init_log(stderr=False)


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
