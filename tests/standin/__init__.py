"""Real CuPy over libraries that stand in for CUDA's: every call is recorded, copies are made, kernels do nothing.

CuPy's wheels have CUDA's runtime linked in, which takes no driver but NVIDIA's. So the one module of CuPy that calls
the runtime is built again, from CuPy's own source, against a runtime of ours with the same calls; all others are the
wheel's. cuBLAS is stood in for, NVRTC is real, and so are cuDNN's graphs and plans (`frontend`).
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import partial
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any

from tests.standin import frontend
from tests.standin.build import LIBRARIES, RUNTIME
from tests.standin.record import Record


class _Finder:
    """Finds the rebuilt module in place of the wheel's."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(name, ExtensionFileLoader(name, str(self._path))) if name == RUNTIME else None


def install(folder: Path) -> Record:
    """Let this process import CuPy over the stand-in that was built into a folder. Ahead of any import of CuPy.

    Returns:
        what it records.
    """
    os.environ["CUPY_ACCELERATORS"] = ""  # CUB has a runtime of its own linked in
    record = Record(folder / "libstandin.so")
    for library in LIBRARIES:
        ctypes.CDLL(str(folder / library), mode=ctypes.RTLD_GLOBAL)  # found by its name from now on
    sys.setdlopenflags(os.RTLD_LAZY)  # the stand-ins have the calls that are made, not all that CuPy could make
    sys.meta_path.insert(0, _Finder(folder / "runtime.so"))  # type: ignore[arg-type]
    import cudnn
    import cupy

    cupy.cuda.set_allocator(partial(_zeroed, cupy.get_default_memory_pool()))
    frontend.install(cudnn, record)
    return record


def _zeroed(pool: Any, n_bytes: int) -> Any:
    """Memory of zeros: no kernel will write it, and the host decides by some of it, as whether a label is wrong."""
    memory = pool.malloc(n_bytes)
    ctypes.memset(memory.ptr, 0, n_bytes)
    return memory
