"""Packages: those that a command or a layer needs beside the necessary ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from scaffe.cli.doctor.finding import ABSENT, FINE, Finding

OPTIONAL = {
    "cv2": ("image files and videos", "'scaffe[images]'"),
    "onnx": ("export-onnx", "'scaffe[onnx]'"),
    "tensorboardX": ("train -tensorboard", "'scaffe[tensorboard]'"),
    "plyvel": ("LevelDB databases", "plyvel"),
}
"""By module: what it is for, and what brings it, as pip takes it."""


def check() -> Iterator[Finding]:
    """Whether the optional packages are installed; they are not imported."""
    for module, (purpose, source) in OPTIONAL.items():
        if importlib.util.find_spec(module) is not None:
            yield Finding(FINE, module, f"for {purpose}")
        else:
            yield Finding(ABSENT, module, f"needed for {purpose} only", f"pip install {source}")
