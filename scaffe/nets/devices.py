"""Devices and precisions: flags, and the choice of a backend."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.errors import LayerError, UserError
from scaffe.flags import Flags
from scaffe.layers.kernels import device
from scaffe.log import warning

PRECISIONS = ("fp32", "bf16", "fp16")
"""What ``-precision`` and ``set_precision`` take; fp16 on GPUs only."""


ON_OFF = ("on", "off")


@dataclass(frozen=True)
class Compute:
    """Device and precision, as a command's flags and the solver choose them.

    Attributes:
        gpus: the GPUs that the node's ranks share, "0,2" or "all"; empty if no flag asks for one.
        wants_gpu: whether the solver says ``solver_mode: GPU``; without a GPU the CPU is used, with a warning.
        precision: of activations, one of ``PRECISIONS``, fp16 on GPUs only; parameters and gradients are float32.
        tf32: whether matrix products and convolutions of float32 numbers may round their inputs to TF32.
    """

    gpus: str = ""
    wants_gpu: bool = False
    precision: str = "fp32"
    tf32: bool = True
    node_rank: int = 0

    @classmethod
    def of(cls, options: Namespace, node_rank: int = 0, wants_gpu: bool = False) -> Compute:
        """Read the flags that ``add_flags`` adds; a command that lacks one gets its default."""
        given = vars(options)
        return cls(given.get("gpu", ""), wants_gpu, given.get("precision", "fp32"), given.get("tf32", "on") == "on",
                   node_rank)

    @property
    def dtype(self) -> np.dtype:
        """Element type of activations. Raises UserError if the package that provides bfloat16 is missing."""
        if self.precision != "bf16":
            return np.dtype({"fp32": np.float32, "fp16": np.float16}[self.precision])
        try:
            import ml_dtypes
        except ImportError as error:
            raise UserError("-precision bf16 needs the package ml_dtypes: pip install ml_dtypes") from error
        dtype: np.dtype = np.dtype(ml_dtypes.bfloat16)
        return dtype


def add_flags(flags: Flags) -> None:
    """Add -gpu, -precision, -tf32 and -nvtx to a command's flags."""
    flags.section("Device")
    flags.flag("gpu", "", "GPUs for the ranks of a node: 0,2 or all", metavar="N,...")
    flags.flag("precision", "fp32", "type of activations; fp16: on GPUs", choices=PRECISIONS)
    flags.flag("tf32", "on", "whether float32 products may use TF32", choices=ON_OFF)
    flags.flag("nvtx", False, "name layers for NVIDIA's profilers")


def load_kernels(n_threads: int, compute: Compute = Compute()) -> Any:  # noqa: B008 - frozen
    """Choose and set up this rank's backend: its GPU if one is asked for, else the CPU. Raises UserError if a flag asks
    for a GPU that is not available, or for fp16 on the CPU."""
    missing = device.missing() if compute.gpus or compute.wants_gpu else ""
    if compute.gpus and missing:
        raise UserError(f"-gpu {compute.gpus}: {missing}")
    if compute.gpus or (compute.wants_gpu and not missing):
        return _gpu(compute)
    if compute.wants_gpu:
        warning(f"solver_mode GPU: {missing}; running on the CPU")
    if compute.precision == "fp16":
        raise UserError("-precision fp16 is for GPUs; the CPU computes in fp32 or bf16")
    from scaffe.layers.kernels import cpu

    cpu.set_threads(n_threads)
    if compute.precision == "bf16":
        _say_if_slow(compute.dtype)
    return cpu


def _say_if_slow(dtype: np.dtype) -> None:
    """On a processor without instructions for bfloat16, log a warning with the measured slowdown."""
    from scaffe.layers.kernels.cpu.bfloat16_cost import slowness

    times = slowness(dtype)
    if times is not None:
        warning(f"-precision bf16: this processor has no instructions for it; a convolution takes {times:.1f} times as "
                "long as in fp32")


def make_context(compute: Compute) -> None:
    """Make this rank's CUDA context on the GPU that a flag asks for, before MPI starts, since UCX and Open MPI look for
    it then. Errors in the flag are left to ``load_kernels``, which raises them on all ranks alike."""
    if compute.gpus and not device.missing():
        with suppress(LayerError, UserError):
            device.use(number_for(compute.gpus, compute.node_rank, device.count()))


def _gpu(compute: Compute) -> Any:
    from scaffe.layers.kernels import cuda

    try:
        device.use(number_for(compute.gpus or "all", compute.node_rank, device.count()))
    except LayerError as error:
        raise UserError(f"-gpu {compute.gpus}: {error}") from error
    cuda.configure(compute.tf32)
    device.compute_stream().use()  # the default stream cannot be recorded
    return cuda


def number_for(gpus: str, node_rank: int, n_devices: int) -> int:
    """The number of the GPU that a rank uses: the node's ranks take the listed GPUs in turn. Raises UserError if
    ``gpus`` is neither.

    Args:
        gpus: numbers with commas between ("0,2"), or "all".
        n_devices: how many GPUs the node has, for "all".
    """
    words = [str(n) for n in range(n_devices)] if gpus == "all" else gpus.split(",")
    if not words or not all(word.strip().isdecimal() for word in words):
        raise UserError(f"-gpu takes numbers with commas between, or all; got {gpus!r}")
    return int(words[node_rank % len(words)])
