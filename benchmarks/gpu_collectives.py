"""Reductions of device buffers among ranks of one machine, against the card's own copy bandwidth; figures as JSON.

    python benchmarks/gpu_collectives.py [--json FILE] [--ranks 2,4] [-m 1048576:268435456] [--case reduce]

Ranks share the GPU where there are more ranks than GPUs. Ways: `ipc` (each rank sums its part of all ranks' buffers in
one kernel), `staged` (a chunked chain through pinned host memory), `aware` (the same chain on device memory, where the
MPI takes it), `nccl` (where CuPy can load it and every rank has a GPU of its own). Every element is verified before it
is timed (`scaffe bench`). On one GPU a reduction over IPC moves (P + 1) n bytes, a copy of n bytes moves 2 n: the last
column is the first rate as a share of the second. Exit code 1, and one line, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from collectives import device  # noqa: E402
from collectives.describe import describe_mpi  # noqa: E402

WAYS = {
    "ipc": ("M", {}),
    "staged": ("C", {"SCAFFE_CUDA_IPC": "0", "SCAFFE_CUDA_AWARE": "0"}),
    "aware": ("C", {"SCAFFE_CUDA_IPC": "0"}),
    "nccl": ("nccl", {}),
}
"""Algorithm, and what the environment says; `aware` runs only where the MPI says that it takes device memory."""
COPIES = 10


def copy_bandwidth(n_bytes: int) -> float:
    """Bytes a second that the card reads and writes when it copies a buffer of its own."""
    cupy = device.load()
    source = cupy.ones(n_bytes, "uint8")
    target, stream = cupy.empty_like(source), cupy.cuda.get_current_stream()
    rates = []
    for _ in range(COPIES):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        target.data.copy_from_device_async(source.data, n_bytes, stream)
        end.record(stream)
        end.synchronize()
        rates.append(2 * n_bytes / (cupy.cuda.get_elapsed_time(start, end) * 1e-3))
    return sorted(rates)[COPIES // 2]


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


def measure(options: argparse.Namespace, n_ranks: int, way: str) -> tuple[list[dict[str, Any]], str]:
    """Rows of one way, and why there are none."""
    algorithm, variables = WAYS[way]
    launcher = os.environ.get("MPIRUN") or str(Path(sys.executable).with_name("mpirun"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [launcher, "-np", str(n_ranks), sys.executable, "-m", "scaffe", "bench", options.case, "-d", "cuda",
                   "-m", options.message_size, "-a", algorithm, "--json", str(file)]
        done = subprocess.run(command, env=environment() | variables, capture_output=True, text=True, check=False)
        if done.returncode or not file.exists():
            said = [line for line in done.stderr.splitlines() if line.startswith(("bench: ", "rank "))]
            return [], said[0] if said else f"exit code {done.returncode}"
        found = json.loads(file.read_text())
    if way == "aware" and "messages from device memory" not in found["transport"]:
        return [], "the MPI does not take device memory"
    return found["rows"], ""


def main() -> int:
    """Measure, print, write. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("-m", "--message-size", default="1048576:268435456")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--case", default="reduce")
    parser.add_argument("--copy-bytes", type=int, default=1 << 30, help="length of the copies to compare with")
    options = parser.parse_args()
    if missing := device.missing():
        sys.stderr.write(f"gpu_collectives: {missing}\n")
        return 1
    about, copied = machine(), copy_bandwidth(options.copy_bytes)
    print(f"# {about}\n# copying: {copied / 1e9:.0f} GB/s read and written\n"
          f"# {'ranks':>5} {'way':7} {'bytes':>10} {'ms':>9} {'GB/s moved':>11} {'of copying':>11}")
    found: list[dict[str, Any]] = []
    for n_ranks in map(int, options.ranks.split(",")):
        for way in options.ways.split(","):
            rows, why = measure(options, n_ranks, way)
            found += _report(rows, n_ranks, way, copied)
            if why:
                print(f"# {n_ranks:5} {way:7} {why}")
    if options.json:
        options.json.write_text(json.dumps(about | {"copy_bytes_per_second": copied, "rows": found}, indent=1) + "\n")
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
