"""NVIDIA's run-time compiler through ctypes: compiles CUDA C++ for any card, on machines without one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from ctypes.util import find_library
from functools import cache
from importlib import metadata
from pathlib import Path


@cache
def library() -> ctypes.CDLL | None:
    """libnvrtc of a wheel (extra ``gpu-check``) or of a CUDA toolkit; None where there is none."""
    for path in _candidates():
        try:
            for builtins in Path(path).parent.glob("libnvrtc-builtins.so.*[0-9]"):
                ctypes.CDLL(str(builtins))  # CUDA 13's wheel does not find them by itself
            found = ctypes.CDLL(path)
        except OSError:
            continue
        found.nvrtcCreateProgram.argtypes = [POINTER(c_void_p), c_char_p, c_char_p, c_int, c_void_p, c_void_p]
        return found
    return None


def _candidates() -> Iterator[str]:
    for wheel in ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc"):
        try:
            files = metadata.files(wheel) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (str(f.locate()) for f in files if f.name.startswith("libnvrtc.so."))
    yield from map(str, sorted(Path("/usr/local").glob("cuda*/lib64/libnvrtc.so*")))
    yield from filter(None, [find_library("nvrtc")])


def architectures() -> list[int]:
    """What this compiler compiles for: 70, 80, 90, ..."""
    n = c_int()
    library().nvrtcGetNumSupportedArchs(byref(n))
    found = (c_int * n.value)()
    library().nvrtcGetSupportedArchs(found)
    return list(found)


def errors(code: str, options: tuple[str, ...]) -> str:
    """What the compiler has to say; empty where it compiled."""
    nvrtc, program, n_bytes = library(), c_void_p(), c_size_t()
    nvrtc.nvrtcCreateProgram(byref(program), code.encode(), b"kernel.cu", 0, None, None)
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), (c_char_p * len(options))(*map(str.encode, options)))
        nvrtc.nvrtcGetProgramLogSize(program, byref(n_bytes))
        log = ctypes.create_string_buffer(n_bytes.value)
        nvrtc.nvrtcGetProgramLog(program, log)
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))
    return f"status {status}: {log.value.decode()}" if status else ""
