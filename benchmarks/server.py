"""A clock of the parameter server (update and read of everything by all workers) beside other servers.

    python benchmarks/server.py [--peer PYTHON_WITH_TORCH] [--ps-lite BINARY] [--ranks N] [--bytes N] [--rounds N]

The others: our own all-reduce of the same bytes in the same job; the same sums with no server around them; MPI
one-sided (Accumulate, Get); PyTorch's RPC parameter server; ps-lite's ``test_kv_app_benchmark``, whose servers add
nothing up, and whose push and pull of 40,000,000 bytes are scaled. Jobs take turns; every element is checked but
ps-lite's. Times are medians of the rounds' medians, of the slowest worker.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

from launcher import mpirun  # isort: skip - scaffe is found then

from figures import Figures, Sample, add_flag, version

PEERS = Path(__file__).parent / "peers"
PS_LITE_BYTES = 40_000_000
N_TIMED = 12

Found = dict[str, float]
"""Milliseconds by name."""


def ours(args: argparse.Namespace, folder: Path) -> Found:
    """The server, and the all-reduce of the same bytes."""
    out = folder / "ours.json"
    command = mpirun(args.ranks, "-m", "scaffe", "bench", "clock", "-m", f"{args.bytes}:{args.bytes}", "-a", "auto,mpi",
                     "-slack", args.slack, "-i", N_TIMED, "-json", out)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    names = {"auto": "our all-reduce", "mpi": "MPI_Allreduce"}
    return {names.get(row["algorithm"], f"ours, {row['algorithm']}"): row["median_us"] / 1e3
            for row in json.loads(out.read_text())["rows"]}


def one_sided(args: argparse.Namespace, folder: Path) -> Found:
    """MPI's windows."""
    return asked("MPI one-sided, ", mpirun(args.ranks, PEERS / "server_rma.py", args.bytes, N_TIMED))


def bound(args: argparse.Namespace, folder: Path) -> Found:
    """What memory takes for the sums alone."""
    return asked("", mpirun(args.ranks, PEERS / "server_sum.py", args.bytes, N_TIMED))


def torch(args: argparse.Namespace, folder: Path) -> Found:
    """PyTorch's RPC."""
    return asked("PyTorch ", [args.peer, str(PEERS / "server_torch.py"), str(args.ranks), str(args.bytes),
                              str(N_TIMED)])


def asked(prefix: str, command: list[str]) -> Found:
    """What a peer prints: milliseconds of every clock by name."""
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {prefix + name: median(times) for name, times in json.loads(output).items()}


def ps_lite(args: argparse.Namespace, folder: Path) -> Found:
    """As many servers as workers, over TCP on this machine."""
    base = os.environ | {"DMLC_NUM_SERVER": str(args.ranks), "DMLC_NUM_WORKER": str(args.ranks),
                         "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "8731", "DMLC_NODE_HOST": "127.0.0.1"}
    roles = ["scheduler", *["server"] * args.ranks, *["worker"] * args.ranks]
    started = [subprocess.Popen([args.ps_lite], env=base | {"DMLC_ROLE": role}, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT) for role in roles]
    logs = [process.communicate(timeout=600)[0] for process in started]
    slowest = [max(float(found) for log in logs for found in re.findall(rf"{what} average time cost: ([\d.e+]+)", log))
               for what in ("Push", "Pull")]
    return {"ps-lite": sum(slowest) * args.bytes / PS_LITE_BYTES}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default="", help="a Python that has torch")
    parser.add_argument("--ps-lite", default="", help="ps-lite's tests/test_kv_app_benchmark, built")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--slack", default="0")
    parser.add_argument("--rounds", type=int, default=5)
    add_flag(parser)
    args = parser.parse_args()
    sides = [ours, bound, one_sided, *[torch] * bool(args.peer), *[ps_lite] * bool(args.ps_lite)]
    found = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for side in sides:
                for name, milliseconds in side(args, Path(folder)).items():
                    found[name].append(milliseconds)
    first = median(next(iter(found.values())))
    note = f"A clock of {args.bytes} bytes, {args.ranks} workers, medians of {args.rounds} rounds, slowest worker."
    versions = {"PyTorch": version(args.peer, "torch")} if args.peer else {}
    with Figures("server", ("what", "ms", "x ours"), note, args.keep, versions, str(args.ranks)) as table:
        for name, times in found.items():
            table.add(name.strip(), Sample(times), median(times) / first)


if __name__ == "__main__":
    main()
