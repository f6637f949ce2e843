"""Caffe's programs where its build tree has them.

build/tools/caffe and the like, so that shell scripts run unchanged.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from scaffe.atomic_files import make_folder, replacing
from scaffe.errors import UserError
from scaffe.flags import Flags

GROUP = "This machine"
PROGRAMS = {  # in Caffe's build tree: the command
    "tools/caffe": "", "tools/compute_image_mean": "compute_image_mean", "tools/convert_imageset": "convert_imageset",
    "tools/convert_annoset": "convert_annoset", "tools/create_label_map": "create_label_map",
    "tools/get_image_size": "get_image_size",
    "tools/extract_features": "extract_features", "tools/upgrade_net_proto_binary": "upgrade_net_proto_binary",
    "tools/upgrade_net_proto_text": "upgrade_net_proto_text",
    "tools/upgrade_solver_proto_text": "upgrade_solver_proto_text",
    "examples/mnist/convert_mnist_data": "convert_mnist_data",
    "examples/cifar10/convert_cifar_data": "convert_cifar_data"}
MARK = "# a program of scaffe's under the name of Caffe's"


def main(argv: list[str]) -> int:
    """``install_tools [FOLDER]``: FOLDER is Caffe's build folder, ``build`` unless given. Returns the exit code."""
    flags = Flags("install_tools", __doc__ or "")
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
