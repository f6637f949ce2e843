"""The checks of ``scaffe doctor`` on this machine: settings, cores, folders, packages and GPUs."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scaffe import control_groups, environment, private_files, threads
from scaffe.errors import UserError
from scaffe.layers.kernels import device

FINE, SLOWER, ABSENT, BROKEN = "ok", "slower", "absent", "broken"
"""As it should be; works but costs speed; an optional part that is not there; training cannot work like this."""


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        state: FINE, SLOWER, ABSENT or BROKEN.
        subject: the subject of the check, in a word or two.
        said: what was found, in one line.
        to_type: the command line that repairs it; empty if there is none.
    """

    state: str
    subject: str
    said: str
    to_type: str = ""


def table(findings: list[Finding]) -> list[str]:
    """One line per finding, and below it the line to type where there is one."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<7} {finding.subject:<{width}}  {finding.said}")
        if finding.to_type:
            lines.append(f"{'':<7} {'':<{width}}  > {finding.to_type}")
    return lines


OTHERS = (*threads.EXPECTED, "NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR", "GLOG_minloglevel", "GLOG_log_dir")
"""Variables of others that change what scaffe does."""


def check_settings(given: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """The settings that are set, one finding each, in the order of the table."""
    for variable in environment.VARIABLES:
        if given.get(variable.name) or (variable.may_be_empty and variable.name in given):
            yield _judged(variable, given)
    for name in OTHERS:
        if given.get(name):
            wrong = threads.wrong(name, given) if name in threads.EXPECTED else ""
            yield (Finding(SLOWER, "settings", wrong, f"unset {name}") if wrong else
                   Finding(FINE, "settings", f"{name}={given[name]}"))
    for name in environment.unknown(given):
        yield Finding(SLOWER, "settings", f"{name}={given[name]}: scaffe reads no such variable", f"unset {name}")


def _judged(variable: environment.Variable[object], given: Mapping[str, str]) -> Finding:
    try:
        variable.get(given)
    except UserError as error:
        return Finding(BROKEN, "settings", str(error), f"unset {variable.name}")
    return Finding(FINE, "settings", f"{variable.name}={given[variable.name]}: {variable.meaning}")


WHEELS = "pip install onednn-cpu-gomp"
NO_WHEELS = "export SCAFFE_ONEDNN=/path/to/libdnnl.so.3  # built from oneDNN's source: its wheels are for x86_64"


def check_processor() -> Iterator[Finding]:
    """How many cores this process may use, and with which instructions oneDNN computes."""
    from scaffe.layers.kernels.cpu.onednn.library import library, reason

    mine, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    if mine < there:
        yield Finding(FINE, "cores", f"{mine} of {there}: this process is bound to them")
    else:
        yield Finding(FINE, "cores", str(there))
    yield from check_threads()
    with threads.openmp_begins_with(1):  # of a value that cannot be OpenMP would write a line of its own
        found = library()
    if found is None:
        yield Finding(SLOWER, "oneDNN", reason(), WHEELS if platform.machine() == "x86_64" else NO_WHEELS)
        return
    yield Finding(FINE, "oneDNN", f"{found.version} with {found.instruction_set()}, {found.path}")


def check_threads(given: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """How many threads a rank alone on this node computes with, and who says it.

    Args:
        given: the variables to look at.
    """
    quota = control_groups.cpu_quota()
    if quota is not None:
        yield Finding(FINE, "cores", f"the control group limits its processes to the time of {quota}")
    with suppress(UserError):  # a wrong SCAFFE_THREADS, which is among the settings
        n, who = threads.chosen(1, given)
        yield Finding(FINE, "threads", f"{n}, as {who} say{'s' * (who != threads.ORDER[-1])}; the first counts of "
                      + ", ".join(threads.ORDER))


LEAST_FREE_BYTES = 1 << 30


def check_folders() -> Iterator[Finding]:
    """Whether the cache and the folder of temporary files can be written, and have room."""
    home, kept = private_files.cache_home(), private_files.kept_folder()
    if kept is None:
        yield Finding(SLOWER, "cache", f"{home} cannot be written: every start compiles its kernels again",
                      f"export {private_files.VARIABLE}=/a/folder/of/your/own")
    elif kept != home:
        why = private_files.why_others_may_change(home) or f"{home} cannot be written"
        yield Finding(SLOWER, "cache", f"{kept}, since {why}", f"export {private_files.VARIABLE}=/a/folder/of/your/own")
    else:
        yield Finding(FINE, "cache", str(kept))
    yield _temporary()


def _temporary() -> Finding:
    try:
        folder = Path(tempfile.gettempdir())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(BROKEN, "temporary", str(error), "export TMPDIR=/a/folder/that/can/be/written")
    said = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return Finding(SLOWER, "temporary", f"{said}; converters need room there", "export TMPDIR=/a/larger/disk")
    return Finding(FINE, "temporary", said)


OPTIONAL = {
    "cv2": ("image files and videos", "'scaffe[images]'"),
    "onnx": ("export-onnx", "'scaffe[onnx]'"),
    "safetensors": ("weights as safetensors, export-torch", "'scaffe[safetensors]'"),
    "resvg_py": ("pictures as PNG", "'scaffe[png]'"),
    "tensorboardX": ("train -tensorboard", "'scaffe[tensorboard]'"),
    "plyvel": ("LevelDB databases", "plyvel"),
}
"""By module: what it is for, and what brings it, as pip takes it."""


def check_packages() -> Iterator[Finding]:
    """Whether the optional packages are installed; they are not imported."""
    for module, (purpose, source) in OPTIONAL.items():
        if importlib.util.find_spec(module) is not None:
            yield Finding(FINE, module, f"for {purpose}")
        else:
            yield Finding(ABSENT, module, f"needed for {purpose} only", f"pip install {source}")


def check_gpu() -> Iterator[Finding]:
    """Which GPUs the driver shows, and whether scaffe can compute on them."""
    names = gpu_names()
    if not names:
        yield Finding(ABSENT, "GPU", "no CUDA driver shows one; -gpu does not work here")
        return
    yield Finding(FINE, "GPU", ", ".join(names))
    lacking = device.missing()
    if lacking:
        yield Finding(ABSENT, "CuPy", lacking, "pip install 'scaffe[cuda12]'")


def gpu_names() -> list[str]:
    """The names of the GPUs that the CUDA driver shows; none without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, names = ctypes.c_int(0), []
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    for i in range(count.value):
        handle, name = ctypes.c_int(0), ctypes.create_string_buffer(256)
        driver.cuDeviceGet(ctypes.byref(handle), i)
        driver.cuDeviceGetName(name, len(name), handle)
        names.append(name.value.decode(errors="replace"))
    return names
