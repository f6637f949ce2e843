"""Compute kernels: a module for each backend, with the same functions. Layers call the one in ``context.kernels``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # mypy checks that the modules implement Backend
    from scaffe.layers.kernels import cpu, cuda
    from scaffe.layers.kernels.backend import Backend, DeviceBackend

    _CPU: Backend = cpu
    _CUDA: DeviceBackend = cuda
