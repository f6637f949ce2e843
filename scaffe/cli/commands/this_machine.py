"""Commands about this machine: what it has, what it lacks, Caffe's programs on it.

Each takes its arguments without the program's name, and returns the exit code.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from scaffe.atomic_files import make_folder, replacing
from scaffe.cli.doctor import job, machine
from scaffe.cli.doctor.machine import BROKEN, gpu_names, table
from scaffe.collectives.launch import launched
from scaffe.errors import UsageError, UserError
from scaffe.flags import Flags
from scaffe.layers.kernels import device
from scaffe.version import processor_name

OPTIONAL = {"cv2": "images (pip install 'scaffe[images]')", "h5py": "HDF5 files", "onnx": "export-onnx",
            "safetensors": "weights as safetensors, export-torch", "resvg_py": "pictures as PNG",
            "plyvel": "LevelDB"}
CHECKS = (machine.check_settings, machine.check_processor, job.check_job, job.check_srun, machine.check_folders,
          machine.check_packages, machine.check_gpu)
PROGRAMS = {"tools/caffe": ""} | {f"{folder}/{name}": name for folder, names in {
    "tools": ("compute_image_mean", "convert_imageset", "convert_annoset", "create_label_map", "get_image_size",
              "extract_features", "upgrade_net_proto_binary", "upgrade_net_proto_text", "upgrade_solver_proto_text"),
    "examples/mnist": ("convert_mnist_data",), "examples/cifar10": ("convert_cifar_data",)}.items() for name in names}
"""By its place in Caffe's build tree: the command that a program runs."""
MARK = "# a program of scaffe's under the name of Caffe's"


def device_query(argv: Sequence[str]) -> int:
    """List what this machine can compute with.

    And what is missing.
    """
    flags = Flags.of(device_query)
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
    lines = [f"cores: {cores} of {os.cpu_count()}, {processor_name() or 'unknown model'}", describe(), describe_mpi(),
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


def doctor(argv: Sequence[str]) -> int:
    """Find what is missing or slow, say what to type.

    Exit code 1 if several ranks cannot train here, else 0.
    """
    Flags.of(doctor).parse(argv)
    if launched():
        raise UsageError("doctor starts ranks by itself: run it without mpirun or srun")
    findings = [finding for check in CHECKS for finding in check()]
    print("\n".join(table(findings)), flush=True)
    return int(any(finding.state == BROKEN for finding in findings))


def install_tools(argv: Sequence[str]) -> int:
    """Put programs where Caffe's build tree has them.

    build/tools/caffe and the like, so that shell scripts run unchanged.
    """
    flags = Flags.of(install_tools)
    flags.argument("folder", "the folder to put them into", default="build")
    options = flags.parse(argv)
    folder = Path(options.folder)
    paths = {folder / f"{name}{ending}": command for name, command in PROGRAMS.items() for ending in ("", ".bin")}
    others = [path for path in paths if (path.exists() or path.is_symlink()) and not _is_ours(path)]
    if others:
        raise UserError(f"{others[0]}: exists and is not ours; give another folder, or move it away")
    if folder.is_symlink():
        make_folder(folder, UserError)
    for path, command in paths.items():
        make_folder(path.parent, UserError)
        with replacing(path, UserError) as file:
            file.write(_launcher(command).encode())
            os.fchmod(file.fileno(), 0o755)
    print(f"{folder}: {len(PROGRAMS)} programs, each with and without .bin")
    return 0


def _launcher(command: str) -> str:
    program = " ".join(shlex.quote(word) for word in (sys.executable, "-m", "scaffe", *command.split()))
    return f'#!/bin/sh\n{MARK}\nexec {program} "$@"\n'


def _is_ours(path: Path) -> bool:
    return path.is_file() and MARK.encode() in path.read_bytes()[:200]
