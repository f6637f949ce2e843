"""GPUs: a driver that shows some, and what computing on them needs."""

from __future__ import annotations

from collections.abc import Iterator

from scaffe.cli.commands.device_query import gpu_names
from scaffe.cli.doctor.finding import ABSENT, FINE, Finding
from scaffe.layers.kernels import device


def check() -> Iterator[Finding]:
    """Which GPUs the driver shows, and whether scaffe can compute on them."""
    names = gpu_names()
    if not names:
        yield Finding(ABSENT, "GPU", "no CUDA driver shows one; -gpu does not work here")
        return
    yield Finding(FINE, "GPU", ", ".join(names))
    lacking = device.missing()
    if lacking:
        yield Finding(ABSENT, "CuPy", lacking, "pip install 'scaffe[cuda12]'")
