"""Our collectives beside an MPI library's own calls, by `scaffe bench`, whose columns take turns.

    python benchmarks/collectives.py [--ranks N] [--memory shared|host] [--mpirun MPIRUN] [CASE ...]

``--mpirun`` is that of another MPI, whose library mpi4py is then to load (MPI4PY_LIBMPI).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import launcher
from figures import Figures, add_flag

CASES = ("reduce", "allreduce", "bcast", "reduce_scatter", "allgather")
SIZES = "4:67108864"


def rows(case: str, options: argparse.Namespace) -> dict[int, dict[str, float]]:
    """Median microseconds of the slowest rank, by bytes and column."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        bench = launcher.python("-m", "scaffe", "bench", case, "-m", SIZES, "-s", "16", "-a", "mpi,auto",
                                "-d", options.memory, "-json", path)
        subprocess.run([options.mpirun, "-np", str(options.ranks), *bench], check=True, stdout=subprocess.DEVNULL)
        found: dict[int, dict[str, float]] = {}
        for row in json.loads(path.read_text())["rows"]:
            found.setdefault(row["bytes"], {})[row["algorithm"]] = row["median_us"]
    return found


def library(mpirun: str) -> str:
    """The MPI library's first line about itself."""
    ask = "from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])"
    done = subprocess.run([mpirun, "-np", "1", sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip().split(",")[0]


def main() -> None:
    """Print a table of the cases asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--memory", choices=("shared", "host"), default="shared")
    parser.add_argument("--mpirun", default=launcher.MPIRUN)
    add_flag(parser)
    options = parser.parse_args()
    name = library(options.mpirun)
    note = f"{options.ranks} ranks of one machine, {options.memory} memory, medians, slowest rank."
    variant = f"{options.memory}-{options.ranks}-{name.split()[0].lower()}"
    columns = ("collective, bytes", "the library, us", "auto, us", "x the library")
    with Figures("collectives", columns, note, options.keep, {"MPI": name}, variant) as table:
        for case in options.cases or CASES:
            for n_bytes, columns_us in rows(case, options).items():
                table.add(f"{case}, {n_bytes:,}", columns_us["mpi"], columns_us["auto"],
                          columns_us["mpi"] / columns_us["auto"])


if __name__ == "__main__":
    main()
