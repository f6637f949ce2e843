"""Choices of cuDNN's plans for other machines: each times plans by itself, and the fastest of two that are as fast may
differ; then so would the bits of what they compute."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from scaffe import private_files
from scaffe.layers.kernels.cuda.cudnn import plans
from scaffe.layers.kernels.cuda.cudnn.graphs import frontend


def machine() -> str:
    """What choices depend on; empty without cuDNN."""
    return "" if frontend() is None else plans.machine()


def kept_choices() -> dict[str, bytes]:
    """What this machine has chosen for its card, driver and libraries: files of the cache folder, by name. Empty
    without cuDNN, or where nothing is kept."""
    folder = private_files.kept_folder(plans.FOLDER)
    if frontend() is None or folder is None:
        return {}
    found = {path.name: private_files.read(path) for path in sorted(folder.iterdir())}
    return {name: content for name, content in found.items() if content is not None and _is_for_this_machine(content)}


def adopt(choices: Mapping[str, bytes]) -> None:
    """Keep another machine's choices in place of this one's. Those for another card, driver or library are left out."""
    folder = private_files.kept_folder(plans.FOLDER)
    if frontend() is None or folder is None:
        return
    with plans.turn():
        for name, content in choices.items():
            if _is_for_this_machine(content) and private_files.read(folder / name) != content:
                with suppress(OSError):
                    private_files.write(folder / name, content)


def _is_for_this_machine(content: bytes) -> bool:
    with suppress(ValueError):
        said: Any = json.loads(content.partition(b"\n")[0])
        return isinstance(said, dict) and str(said.get("name")).startswith(plans.machine())
    return False
