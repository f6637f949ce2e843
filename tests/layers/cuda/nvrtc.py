"""NVIDIA's run-time compiler through ctypes: compiles CUDA C++ for any card, on machines without one."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from ctypes.util import find_library
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple


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


class Usage(NamedTuple):
    """What a thread and a block of a kernel take.

    Attributes:
        registers: of a thread.
        spill_bytes: of a thread, written to memory and read back because registers are short.
        shared_bytes: of a block, beside what a launch asks for.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int

    def blocks(self, n_threads: int, shared_per_multiprocessor: int) -> int:
        """How many blocks of that many threads a multiprocessor holds (CUDA's occupancy calculator: registers are
        given out by 256 to a warp, of 65,536; 2,048 threads and 32 blocks at most; a KiB of shared memory a block)."""
        warps = n_threads // 32
        by_registers = 65536 // (-(-self.registers * 32 // 256) * 256) // warps
        by_memory = shared_per_multiprocessor // (self.shared_bytes + 1024)
        return min(by_registers, 2048 // n_threads, 32, by_memory)


def errors(code: str, options: tuple[str, ...]) -> str:
    """What the compiler has to say; empty where it compiled."""
    status, log = compiled(code, options)
    return f"status {status}: {log}" if status else ""


def usage(code: str, options: tuple[str, ...]) -> dict[str, Usage]:
    """What each kernel of a source takes on a card, as the assembler says. Raises AssertionError with its errors."""
    status, log = compiled(code, (*options, "--ptxas-options=-v"))
    if status:
        raise AssertionError(log)
    found = {}
    for name, text in re.findall(r"Compiling entry function '(\w+)'(.*?Used \d+ registers[^\n]*)", log, re.DOTALL):
        stores, registers = (int(re.search(pattern, text)[1]) for pattern in (r"(\d+) bytes spill stores",
                                                                             r"Used (\d+) registers"))
        shared = re.search(r"(\d+) bytes smem", text)
        found[name] = Usage(registers, stores, int(shared[1]) if shared else 0)
    return found


def compiled(code: str, options: tuple[str, ...]) -> tuple[int, str]:
    """The status, 0 where it compiled, and the log."""
    nvrtc, program, n_bytes = library(), c_void_p(), c_size_t()
    nvrtc.nvrtcCreateProgram(byref(program), code.encode(), b"kernel.cu", 0, None, None)
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), (c_char_p * len(options))(*map(str.encode, options)))
        nvrtc.nvrtcGetProgramLogSize(program, byref(n_bytes))
        log = ctypes.create_string_buffer(n_bytes.value)
        nvrtc.nvrtcGetProgramLog(program, log)
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))
    return status, log.value.decode()
