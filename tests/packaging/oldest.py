"""Prints, as constraints for pip, the oldest version that pyproject.toml allows of each package that it names.

    python tests/packaging/oldest.py > oldest.txt

A package that is named more than once gets the highest of its lower bounds: all of them must hold.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

LOWER = re.compile(r"^(?P<name>[\w-]+)(?:\[[\w,]+\])?[^;]*?(?P<how>>=|==)(?P<version>[\d.]+)")
INSTALLED = ("mpi", "images", "onnx", "png", "safetensors", "tensorboard", "gpu-check", "dev")
"""The extras of `.[mpi,dev]`."""


def oldest(project: dict[str, object]) -> dict[str, str]:
    """Lower bounds by package, of what `.[mpi,dev]` needs.

    Args:
        project: the table `project` of pyproject.toml.
    """
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in INSTALLED for line in extras[name])]
    found: dict[str, str] = {}
    for match in filter(None, map(LOWER.match, lines)):
        name, version = match["name"].lower(), match["version"]
        found[name] = max(found.get(name, version), version, key=numbers)
    return found


def numbers(version: str) -> list[int]:
    """A version's numbers, to compare it by."""
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    for package, version in oldest(tomllib.loads(text)["project"]).items():
        print(f"{package}=={version}")
