"""RawModule and RawKernel: a kernel's CUDA C++ compiled by the machine's C++ compiler, run by the emulator."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.private_files import first_usable
from tests.pretend.array import ndarray
from tests.pretend.contexts import current_device
from tests.pretend.memory import MemoryPointer, allocation_at
from tests.pretend.queue import CudaError, current_stream

EMULATOR = Path(__file__).with_name("emulator.h")
INCLUDES = Path(__file__).with_name("include")  # in place of CUDA's headers
KERNEL = re.compile(r"__attribute__\s*\(\(used\)\)\s+void\s+(\w+)\s*\(")  # what the emulator makes of __global__
DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-w", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE",
         "-fsanitize=alignment", "-fno-sanitize-recover=alignment", "-x", "c++")
MOST_THREADS, MOST_STATIC_SHARED, MOST_SHARED = 1024, 48 << 10, 227 << 10


@cache
def compiler() -> str | None:
    """A C++ compiler that can build the emulator, or None."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and shutil.which(name):
            try:
                _build(name, "extern \"C\" __global__ void nothing() {}", ())
            except CompileException:
                continue
            return name
    return None


class CompileException(Exception):
    """A source that does not compile; its text is the compiler's."""


def _build(name: str, code: str, options: tuple[str, ...]) -> Path:
    """The shared library of a source, from the temporary folder where it was built before."""
    code = DYNAMIC.sub(r"\1* \2 = (\1*)emulator::dynamic_shared;", code)
    text = f'#include "{EMULATOR}"\n#line 1 "kernel.cu"\n{code}\n'
    flags = [*FLAGS, f"-I{INCLUDES}", *(o for o in options if o.startswith(("-D", "-I")))]
    key = hashlib.sha256("\0".join([name, *flags, text, EMULATOR.read_text()]).encode()).hexdigest()[:24]
    built = _folder() / f"{key}.so"
    with _one_builder(built):
        if not built.exists():
            whole = built.with_suffix(f".{os.getpid()}.so")
            expanded = _run([name, *flags, "-E", "-"], text)
            kernels = sorted(set(KERNEL.findall(expanded)))
            _run([name, *flags, "-shared", "-", "-o", str(whole)], expanded + _entries(kernels))
            whole.rename(built)
    return built


@contextmanager
def _one_builder(built: Path) -> Iterator[None]:
    """Of the processes that want the same library one builds it while the others wait: ranks would all do the same."""
    if built.exists():
        yield
        return
    with built.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def library(source: str) -> str:
    """The shared library of a C++ file of this folder."""
    text = Path(__file__).with_name(source).read_text()
    built = _folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
    with _one_builder(built):
        if not built.exists():
            whole = built.with_suffix(f".{os.getpid()}.so")
            _run([str(compiler()), "-std=c++17", "-O1", "-fPIC", "-shared", "-x", "c++", "-", "-o", str(whole)], text)
            whole.rename(built)
    return str(built)


def _folder() -> Path:
    """In the user's cache, whatever SCAFFE_CACHE a test has set: in the temporary folder it would be left behind."""
    kept = first_usable([Path.home() / ".cache" / "scaffe"], "pretend-cuda")
    return kept or Path(tempfile.mkdtemp(prefix="pretend-cuda-"))


def _run(command: list[str], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise CompileException(done.stderr)
    return done.stdout


def _entries(kernels: list[str]) -> str:
    """What Python calls: a launch, and the parameters' kinds and lengths, of each kernel."""
    return "".join(f'extern "C" const char* launch_{k}(const unsigned* d, size_t s, void** a) '
                   f"{{ return emulator::launch(&{k}, d, s, a); }}\n"
                   f'extern "C" void parameters_{k}(char* out) {{ emulator::parameters(&{k}, out); }}\n'
                   for k in kernels)


class RawModule:
    """A source and its kernels; compiled when the first is asked for."""

    def __init__(self, *, code: str | None = None, path: str | None = None, options: tuple[str, ...] = (),
                 backend: str = "nvrtc", translate_cucomplex: bool = False, enable_cooperative_groups: bool = False,
                 name_expressions: Any = None, jitify: Any = None) -> None:
        if code is None or name_expressions:
            raise NotImplementedError("the pretend module compiles sources with extern \"C\" kernels only")
        if not isinstance(options, tuple):
            raise TypeError("options must be a tuple")
        self.code, self.options = code, options

    def compile(self, log_stream: Any = None) -> None:
        """Compile now."""
        _ = self._library

    @property
    def _library(self) -> ctypes.PyDLL:
        """Held under the interpreter's lock: the emulator is one thread's."""
        name = compiler()
        if name is None:
            raise CompileException("no C++ compiler")
        return _library(str(_build(name, self.code, self.options)))

    def get_function(self, name: str) -> RawKernel:
        """One of its kernels."""
        return RawKernel(self.code, name, self.options)


@cache
def _library(path: str) -> ctypes.PyDLL:
    return ctypes.PyDLL(path)


class RawKernel:
    """One kernel: ``kernel(grid, block, args, shared_mem=0, stream=None)``."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc", **_: Any) -> None:
        self.code, self.name, self.options = code, name, options
        self.max_dynamic_shared_size_bytes = MOST_STATIC_SHARED
        self._launch: Any = None
        if code is not None:
            self._find()

    def _find(self) -> None:
        library = RawModule(code=self.code, options=self.options)._library
        if not hasattr(library, f"launch_{self.name}"):
            raise CudaError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {self.name}")
        self._launch = getattr(library, f"launch_{self.name}")
        self._launch.restype = ctypes.c_char_p
        text = ctypes.create_string_buffer(4096)
        getattr(library, f"parameters_{self.name}")(text)
        self.parameters = [(p[0], int(p[1:])) for p in text.value.decode().split()]

    def compile(self, log_stream: Any = None) -> None:
        """It is."""

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: Any, *, shared_mem: int = 0,
                 stream: Any = None) -> None:
        grid, block = ((*map(int, dims), 1, 1)[:3] for dims in (grid, block))
        grid, block = (tuple(max(1, n) for n in dims) for dims in (grid, block))  # as CuPy does
        n_threads = block[0] * block[1] * block[2]
        if n_threads > MOST_THREADS or block[2] > 64 or max(grid[1:]) > 65535 or grid[0] > 2**31 - 1:
            raise CudaError(f"CUDA_ERROR_INVALID_VALUE: {self.name}: grid {grid}, block {block}")
        if shared_mem > self.max_dynamic_shared_size_bytes or shared_mem > MOST_SHARED:
            raise CudaError(f"CUDA_ERROR_INVALID_VALUE: {self.name}: {shared_mem} bytes of dynamic shared memory")
        values = [self._value(i, a) for i, a in enumerate(args)]
        if len(values) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} parameters, got {len(values)}")
        dims = (ctypes.c_uint * 6)(*grid, *block)
        pointers = (ctypes.c_void_p * max(len(values), 1))(*(v.ctypes.data for v in values))
        blocks = [found.block for found in map(_memory_of, args) if found is not None and found.block is not None]

        def run() -> None:
            failure = self._launch(dims, ctypes.c_size_t(shared_mem), pointers)
            if failure:
                raise CudaError(f"{self.name}: {failure.decode()}")
            for block in blocks:
                block.check()
            _ = values
        stream = stream or current_stream()
        if stream.device_id not in (-1, current_device()):
            raise CudaError(f"CUDA_ERROR_INVALID_HANDLE: {self.name}: the stream is of another device than the current")
        stream.add(run)

    def _value(self, i: int, a: Any) -> np.ndarray:
        """The bytes of a parameter. The device would take any: here they must be of the kind and length declared."""
        if isinstance(a, ndarray):
            if not a.flags.c_contiguous:
                raise AssertionError(f"parameter {i} of {self.name} is a strided array: kernels see addresses alone")
            value, kind = np.array(a._host.ctypes.data), "p"
        elif isinstance(a, MemoryPointer) or a is None:
            value, kind = np.array(0 if a is None else a.ptr, np.intp), "p"
        elif isinstance(a, np.ndarray) and a.size != 1:
            raise TypeError(f"You are trying to pass a numpy.ndarray of shape {a.shape} as a kernel parameter.")
        else:
            value = np.array(a)  # taken now, as a launch does
            kind = {"f": "f", "V": "s"}.get(value.dtype.kind, "i")
        wanted, n_bytes = self.parameters[i] if i < len(self.parameters) else (kind, value.nbytes)
        fits_pointer = wanted == "p" and kind == "i" and value.nbytes == 8  # an address
        if (kind != wanted and not fits_pointer) or value.nbytes != n_bytes:
            raise TypeError(f"parameter {i} of {self.name} is '{wanted}' of {n_bytes} bytes, got {a!r} ({value.dtype})")
        return value


def _memory_of(a: Any) -> Any:
    """The allocation that a parameter points to."""
    if isinstance(a, (ndarray, MemoryPointer)):
        return a._memory if isinstance(a, ndarray) else a.mem
    return allocation_at(int(a)) if isinstance(a, (np.uint64, np.intp)) else None
