"""The flags of limited memory (-memory, -spill, -placement), and amounts of memory as people write them."""

from __future__ import annotations

import re
from argparse import Namespace
from typing import Any

from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.layers.base.context import ParamMemory
from scaffe.layers.kernels.backend import Backend, is_device
from scaffe.mapped_memory import return_freed_memory
from scaffe.memory.backing.file_backed import FileBackedMemory, StagedOnHost
from scaffe.memory.backing.spill_file import SpillFile
from scaffe.memory.plan.placements import PLACEMENTS

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
         "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
MOST_BYTES = 10**18
WORDS = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*|%)")


def amount(text: str) -> str:
    """The kind of a flag: returns the text itself if it is an amount of memory, or empty. Raises ValueError
    otherwise."""
    if text:
        n_bytes(text, 1)
    return text


def n_bytes(text: str, whole: int) -> int:
    """The bytes that an amount means. Raises ValueError if the text is no amount, or the amount is not above 0, or is
    above MOST_BYTES.

    Args:
        text: a number with a unit, a number of bytes, or a share with a percent sign.
        whole: what a share is of, in bytes.
    """
    found = WORDS.fullmatch(text.strip())
    unit = found[2].upper() if found else None
    if found is None or (unit != "%" and unit not in UNITS) or float(found[1]) <= 0:
        raise ValueError("must be an amount of memory such as 2GB, 512MiB or 40%")
    number = float(found[1])
    amount_bytes = number * whole / 100 if unit == "%" else number * UNITS[unit or ""]
    if amount_bytes > MOST_BYTES:
        raise ValueError(f"must be at most {shown(MOST_BYTES)}")
    return int(amount_bytes)


def shown(amount_bytes: float) -> str:
    """Bytes for people, with three digits: 1.23 GB."""
    for unit in ("TB", "GB", "MB", "KB"):
        if amount_bytes >= UNITS[unit]:
            return f"{amount_bytes / UNITS[unit]:.3g} {unit}"
    return f"{amount_bytes:.0f} B"


def add_memory_flags(flags: Flags) -> None:
    """Add ``-memory``, ``-spill`` and ``-placement`` to a command's flags."""
    flags.flag("memory", "", "the limit of a rank's memory: 2GB, 40%", kind=amount, metavar="AMOUNT")
    flags.flag("spill", ".", "where the rest lies: folder on a local disk", metavar="FOLDER")
    flags.flag("placement", "auto", "the way: auto, geeps, move, recompute",
               choices=tuple(PLACEMENTS), metavar="NAME")


def check_debug_info(param: Any, options: Namespace) -> None:
    """Raise UserError if ``-memory`` is given with a solver that has ``debug_info``. Called by all ranks, each of which
    raises it."""
    if param.debug_info and vars(options).get("memory", ""):
        raise UserError("-memory does not go with debug_info, which reads blobs that are not in memory",
                        everywhere=True)


def param_memory(options: Namespace, kernels: Backend) -> ParamMemory | None:
    """Where the parameters of a net that is not trained are made; None, if ``-memory`` is not given: in the backend's
    own memory. Raises UserError if there can be no spill file."""
    return StagedOnHost() if options.memory and is_device(kernels) else backed_memory(options, kernels, -1)


def backed_memory(options: Namespace, kernels: Backend, rank: int) -> FileBackedMemory | None:
    """Where a net's parameters are made in host memory; None, if ``-memory`` is not given or the net computes on a
    device. ``rank``: this rank, for error lines; below 0 if it is the only one."""
    if not vars(options).get("memory", "") or is_device(kernels):
        return None
    return_freed_memory()
    return FileBackedMemory(SpillFile(options.spill), rank)
