"""Builds the stand-in: our C, and CuPy's module `runtime` from CuPy's source.

    python -m tests.standin.build FOLDER
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = "cupy_backends.cuda.api.runtime"
LIBRARIES = {"libcuda.so.1": ("driver.c", "pages.c", "missing.c"), "libcudart.so.12": ("runtime.c",),
             "libcublas.so.12": ("blas.c",)}
FLAGS = ("-O1", "-w", "-fPIC", "-shared")


def nvidia() -> Path:
    """The folder of NVIDIA's wheels."""
    spec = find_spec("nvidia")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the extra cuda12 is not installed")
    return Path(spec.submodule_search_locations[0])


def includes() -> list[str]:
    """Where headers are: a few of ours that stand in front, and those of the toolkit's runtime."""
    return [f"-I{HERE / 'include'}", f"-I{HERE}", f"-I{nvidia() / 'cuda_runtime/include'}"]


def compile_with(compiler: str, *arguments: str | Path) -> None:
    """Run a compiler."""
    subprocess.run([shutil.which(compiler) or compiler, *FLAGS, *includes(), *map(str, arguments)], check=True)


def driver_names(libraries: list[Path]) -> list[str]:
    """The driver's functions that libraries name."""
    names = set()
    for library in libraries:
        names |= {n.decode() for n in re.findall(rb"\0(cu[A-Z][A-Za-z0-9_]+)(?=\0)", library.read_bytes())}
    return sorted(n for n in names if not n.startswith(("cublas", "cudnn", "cuda")))


def build_libraries(folder: Path) -> None:
    """Compile the stand-ins; what else cuDNN names of the driver answers that there is no device."""
    (folder / "blas.map").write_text("libcublas.so.12 { global: *; };\n")
    functions = driver_names(list(nvidia().glob("cudnn/lib/*.so.9")))
    (folder / "missing.c").write_text("".join(f"__attribute__((weak)) int {n}(void) {{ return 100; }}\n"
                                              for n in functions))
    compile_with("gcc", HERE / "record.c", "-o", folder / "libstandin.so", "-lpthread")
    for library, sources in LIBRARIES.items():
        paths = [path if path.exists() else folder / path.name for path in (HERE / name for name in sources)]
        versions = [f"-Wl,--version-script={folder / 'blas.map'}"] if "cublas" in library else []
        compile_with("gcc", *paths, "-o", folder / library, f"-Wl,-soname,{library}", *versions,
                     f"-L{folder}", "-lstandin", "-Wl,-rpath,$ORIGIN")


def build_runtime(folder: Path, source: Path) -> None:
    """Compile CuPy's module of the runtime from its source distribution, if it is not there yet."""
    if (folder / "runtime.so").exists():
        return
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    top = next(folder.glob("cupy-*/"))
    known = "CUPY_USE_CUDA_PYTHON=False,CUPY_CUFFT_STATIC=False,CUPY_CUDA_VERSION=12090,CUPY_HIP_VERSION=0"
    module = top / (RUNTIME.replace(".", "/") + ".pyx")
    subprocess.run([sys.executable, "-m", "cython", "-3", "--cplus", "-E", known, "-X", "binding=False",
                    "-X", "c_api_binop_methods=True", str(module.relative_to(top)), "-o", folder / "runtime.cpp"],
                   cwd=top, check=True, capture_output=True)
    compile_with("g++", f"-I{module.parent}", f"-I{sysconfig.get_path('include')}", folder / "runtime.cpp",
                 "-o", folder / "runtime.so", "-Wl,-z,lazy")


def download(folder: Path, version: str) -> Path:
    """CuPy's source distribution, from the package index unless it is there."""
    path = folder / f"cupy-{version}.tar.gz"
    if not path.exists():
        # pip asks the package for its metadata, for which it would look for CUDA
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "cupy",
                        f"cupy=={version}", "-d", folder], env=os.environ | {"CUPY_INSTALL_USE_STUB": "1"}, check=True)
    return path


def build(folder: Path) -> None:
    """Build all of it into a folder."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    build_libraries(folder)
    build_runtime(folder, download(folder, metadata.version("cupy-cuda12x")))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
