"""Reductions of device buffers among ranks of one machine, against the card's own copy bandwidth; figures as JSON.

    python benchmarks/gpu_collectives.py [--json FILE] [--ranks 2,4] [-m MIN:MAX] [--case reduce] [--seconds 100]

Ranks share the GPU where there are more ranks than GPUs. Ways: `kernel` (the kernel that IPC uses, on buffers of one
process: what is left when nobody has to wait), `ipc` (one rank a GPU sums all ranks' buffers in that kernel), `staged`
(a chunked chain through pinned host memory), `aware` (the same chain on device memory, where the MPI takes it), `nccl`
(where CuPy can load it and every rank has a GPU of its own). Every element is verified before it is timed. On one GPU a
reduction over IPC moves (P + 1) n bytes, a copy of n bytes moves 2 n: the last column is the first rate as a share of
the second. The file is written anew after every way; a way that fails, or takes longer than there is time, says so, and
the next one runs. Exit code 1, and one line, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from launcher import mpirun  # noqa: E402

from scaffe.collectives.bench.options import sizes  # noqa: E402
from scaffe.collectives.cuda import device  # noqa: E402
from scaffe.collectives.cuda.kernels import kernels  # noqa: E402
from scaffe.collectives.launch import describe_mpi  # noqa: E402

WAYS = {
    "ipc": ("M", {}),
    "staged": ("C", {"SCAFFE_CUDA_IPC": "0", "SCAFFE_CUDA_AWARE": "0"}),
    "aware": ("C", {"SCAFFE_CUDA_IPC": "0"}),
    "nccl": ("nccl", {}),
}
"""Algorithm, and what the environment says; `aware` runs only where the MPI says that it takes device memory."""
COPIES, CALLS = 10, 20
LAST_SECONDS = 10  # that a launcher has to end its ranks


def limited(command: Sequence[str], seconds: float, env: Mapping[str, str] | None = None,
            cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a command said. Raises TimeoutExpired after `seconds`.

    It is told to end then, or when this process is, and only killed where it does not: a launcher ends its ranks first.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=cwd)
    try:
        said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise subprocess.TimeoutExpired(command, seconds, *_ended(process)) from error
    except BaseException:
        _ended(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, *said)


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.terminate()
    try:
        return process.communicate(timeout=LAST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def timed(call: Any, n_calls: int) -> float:
    """Seconds that the device takes for one call: the median."""
    cupy = device.load()
    stream, seconds = cupy.cuda.get_current_stream(), []
    for _ in range(n_calls + 1):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        call()
        end.record(stream)
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, end) * 1e-3)
    return sorted(seconds[1:])[n_calls // 2]


def copy_bandwidth(n_bytes: int) -> float:
    """Bytes a second that the card reads and writes when it copies a buffer of its own."""
    cupy = device.load()
    source = cupy.ones(n_bytes, "uint8")
    target, stream = cupy.empty_like(source), cupy.cuda.get_current_stream()
    return 2 * n_bytes / timed(lambda: target.data.copy_from_device_async(source.data, n_bytes, stream), COPIES)


def kernel_rows(n_ranks: int, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """The gathering kernel's reduction of as many buffers of this process to the first. Raises where it is wrong."""
    cupy, rows = device.load(), []
    for n_bytes in lengths:
        buffers = [cupy.full(n_bytes // 4, rank + 1, np.float32) for rank in range(n_ranks)]
        addresses, everyone = [buffer.data.ptr for buffer in buffers], (0, n_ranks, 0, 1, -1)
        call = kernels().gathering(addresses, 0, n_bytes // 4, np.dtype(np.float32), "sum", everyone)
        call()
        wrong = int((buffers[0] != sum(range(n_ranks + 1))).sum())
        if wrong:
            raise ValueError(f"the kernel's sum of {n_ranks} buffers of {n_bytes} bytes has {wrong} wrong elements")
        rows.append({"bytes": n_bytes, "algorithm": "M", "median_us": timed(call, CALLS) * 1e6})
    return rows


def machine() -> dict[str, Any]:
    """What the figures are of."""
    cupy = device.load()
    runtime = cupy.cuda.runtime
    cards = [runtime.getDeviceProperties(number)["name"].decode() for number in range(runtime.getDeviceCount())]
    return {"date": date.today().isoformat(), "cards": cards, "driver": runtime.driverGetVersion(),
            "runtime": runtime.runtimeGetVersion(), "cupy": cupy.__version__, "mpi": describe_mpi()}


def environment() -> dict[str, str]:
    """This process's, with what mpi.env says the launcher needs."""
    lines = (ROOT / "mpi.env").read_text().splitlines()
    wanted = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return wanted | os.environ | {"PYTHONPATH": path}


def measure(options: argparse.Namespace, n_ranks: int, way: str, seconds: float) -> tuple[list[dict[str, Any]], str]:
    """Rows of one way, and how its buffers travelled, or why there are no rows."""
    algorithm, variables = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = mpirun(n_ranks, "-m", "scaffe", "bench", options.case, "-memory", "device",
                         "-m", options.message_size, "-a", algorithm, "--json", file)
        try:
            done = limited(command, seconds, environment() | variables)
        except subprocess.TimeoutExpired:
            return [], f"took more than {seconds:.0f} s"
        except OSError as error:
            return [], str(error)
        if done.returncode or not file.exists():
            said = [line for line in done.stderr.splitlines() if line.startswith(("bench: ", "rank "))]
            return [], (said or done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"])[0]
        found = json.loads(file.read_text())
    return found["rows"], found["transport"]


class Run:
    """The figures so far, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self._end = options, time.monotonic() + options.seconds
        self._copied = copy_bandwidth(options.copy_bytes)
        device.load().get_default_memory_pool().free_all_blocks()  # the ranks want it
        self.figures = machine() | {"copy_bytes_per_second": self._copied, "rows": [], "transport": {}}
        self._is_aware = True  # until a transport says that it is not
        print(f"# {machine()}\n# copying: {self._copied / 1e9:.0f} GB/s read and written\n"
              f"# {'ranks':>5} {'way':7} {'bytes':>10} {'ms':>9} {'GB/s moved':>11} {'of copying':>11}", flush=True)

    def way(self, n_ranks: int, way: str) -> None:
        """Measure one way, print its rows or why there are none, write all there are."""
        rows, said = self._rows(n_ranks, way)
        if rows and way != "kernel":
            self.figures["transport"][f"{n_ranks} {way}"] = said
            self._is_aware &= "messages from device memory" in said or "SCAFFE_CUDA_AWARE=0" in said
        elif not rows:
            self.figures.setdefault("missing", {})[f"{n_ranks} {way}"] = said
            print(f"# {n_ranks:5} {way:7} {said}", flush=True)
        self.figures["rows"] += _report(rows, n_ranks, way, self._copied)
        if self._options.json:
            self._options.json.write_text(json.dumps(self.figures, indent=1) + "\n")

    def _rows(self, n_ranks: int, way: str) -> tuple[list[dict[str, Any]], str]:
        left = self._end - time.monotonic()
        if left < 1:
            return [], "no time was left"
        if way == "aware" and not self._is_aware:
            return [], "the MPI does not take device memory"
        if way != "kernel":
            return measure(self._options, n_ranks, way, left)
        try:
            return kernel_rows(n_ranks, sizes(self._options.message_size, 4)), ""
        except Exception as error:  # CuPy's errors, and ours: the other ways may yet run
            return [], f"{type(error).__name__}: {error}"
        finally:
            device.load().get_default_memory_pool().free_all_blocks()


def main() -> int:
    """Measure, print, write. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("-m", "--message-size", default="1048576:268435456")
    parser.add_argument("--ways", default=",".join(["kernel", *WAYS]))
    parser.add_argument("--case", default="reduce")
    parser.add_argument("--copy-bytes", type=int, default=1 << 30, help="length of the copies to compare with")
    parser.add_argument("--seconds", type=float, default=100, help="for everything")
    options = parser.parse_args()
    if missing := device.missing():
        sys.stderr.write(f"gpu_collectives: {missing}\n")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so what it has started ends too
    run = Run(options)
    for way in options.ways.split(","):
        for n_ranks in map(int, options.ranks.split(",")):
            run.way(n_ranks, way)
    return 0


def _report(rows: list[dict[str, Any]], n_ranks: int, way: str, copied: float) -> list[dict[str, Any]]:
    """Print rows with their rates; the rows with rates."""
    for row in rows:
        moved = (n_ranks + 1) * row["bytes"] / (row["median_us"] * 1e-6)
        row |= {"ranks": n_ranks, "way": way, "moved_bytes_per_second": moved, "share_of_copying": moved / copied}
        print(f"{n_ranks:7} {way:7} {row['bytes']:10} {row['median_us'] / 1e3:9.3f} {moved / 1e9:11.0f} "
              f"{moved / copied:11.2f}", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
