"""What this machine has to compute with.

And what is missing.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.layers.kernels import device

GROUP = "This machine"
OPTIONAL = {"cv2": "images (pip install 'scaffe[images]')", "h5py": "HDF5 files", "onnx": "export-onnx",
            "plyvel": "LevelDB"}


def main(argv: list[str]) -> int:
    """``device_query [-gpu 0]``. Returns the exit code."""
    flags = Flags("device_query", __doc__ or "")
    flags.flag("gpu", "", "GPUs that must be there, or all", metavar="N,...")
    flags.pass_over("solver", "model", "weights", "iterations", "phase")
    options = flags.parse(argv)
    gpus = gpu_names()
    missing = [word for word in options.gpu.split(",") if word and word != "all" and
               not (word.isdecimal() and int(word) < len(gpus))]
    if missing:
        raise UserError(f"there is no GPU {', '.join(missing)}: {'; '.join(describe_gpus(gpus))}")
    print("\n".join(describe_machine(gpus)), flush=True)
    return 0


def describe_machine(gpus: list[str]) -> list[str]:
    """One line a part: cores, oneDNN, MPI, GPUs, optional packages."""
    from scaffe.collectives.launch import describe_mpi
    from scaffe.layers.kernels.cpu import describe

    cores = len(os.sched_getaffinity(0))
    lines = [f"cores: {cores} of {os.cpu_count()}, {_processor()}", describe(), describe_mpi(),
             *describe_gpus(gpus)]
    for module, what in OPTIONAL.items():
        there = importlib.util.find_spec(module) is not None
        lines.append(f"{module}: {'there' if there else 'missing'}, for {what}")
    return lines


def describe_gpus(gpus: list[str]) -> list[str]:
    """The GPUs that the driver shows, and what is missing to compute on them."""
    lines = ["GPUs: " + (", ".join(f"{i}: {name}" for i, name in enumerate(gpus)) or "none that a CUDA driver shows")]
    lacking = device.missing()
    if lacking:
        return [*lines, f"to compute on a GPU: {lacking}"]
    from scaffe.layers.kernels.cuda.cudnn.graphs import reason

    for number in range(device.count()):
        lines += [f"  {name}: {value}" for name, value in device.describe(number).items()]
    return [*lines, reason()]


def gpu_names() -> list[str]:
    """The names of the GPUs that the CUDA driver shows; none without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, names = ctypes.c_int(0), []
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    for i in range(count.value):
        handle, name = ctypes.c_int(0), ctypes.create_string_buffer(256)
        driver.cuDeviceGet(ctypes.byref(handle), i)
        driver.cuDeviceGetName(name, len(name), handle)
        names.append(name.value.decode(errors="replace"))
    return names


def _processor() -> str:
    """The processor's name as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown model")
