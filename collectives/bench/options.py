"""The benchmarks' command line: the OSU micro-benchmarks' flags, and ours."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from scaffe.collectives.bench.parser import Parser
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.datatypes import DTYPES

CASES = ("reduce", "allreduce", "bcast", "reduce_scatter", "allgather", "latency")
PLACES = ("host", "cuda")
LARGE_BYTES = 8192
"""Above this OSU takes fewer iterations, and so do we."""


def parser() -> argparse.ArgumentParser:
    """The argument parser of `bench`."""
    made = Parser("scaffe bench", description="Measure collectives among the ranks of this job; "
                                   "every element is verified before anything is timed.", allow_abbrev=False)
    made.add_argument("case", choices=CASES, help="what to measure")
    made.add_argument("-m", "--message-size", default="4:1048576", metavar="[MIN:]MAX", help="bytes")
    made.add_argument("-s", "--step", type=int, default=2, help="factor from one message size to the next")
    made.add_argument("-a", "--algorithms", default="mpi,auto", help="one column each; NAME@BYTES sets the chunk")
    made.add_argument("-x", "--warmup", type=int, default=None, help="iterations before timing")
    made.add_argument("-i", "--iterations", type=int, default=None, help="timed iterations")
    made.add_argument("-f", "--full", action="store_true", help="also minimum, mean and maximum")
    made.add_argument("-c", "--validation", action="store_true", help="print that each column was verified")
    made.add_argument("-d", "--device", choices=PLACES, default="host", help="where the buffers lie")
    made.add_argument("-o", "--overlap", action="store_true", help="overlap of the non-blocking form with compute")
    made.add_argument("--check-auto", action="store_true",
                      help="all columns in place; exit code 1 where auto takes over 1.1 times the best other")
    made.add_argument("-T", "--dtype", choices=DTYPES, default="float32", help="element type")
    made.add_argument("--memory", choices=("window", "private"), default="window",
                      help="buffers from Communicator.alloc, or the rank's own")
    made.add_argument("--root", type=int, default=0)
    made.add_argument("--json", metavar="FILE", help="write the rows there as well")
    return made


def sizes(text: str, item_bytes: int, factor: int = 2) -> list[int]:
    """Lengths in bytes of `MIN:MAX` (or `MAX`), each `factor` times the last, from one element. Raises CommError."""
    low, colon, high = text.rpartition(":")
    if not high.isdigit() or (colon and not low.isdigit()):
        raise CommError(f"-m needs MIN:MAX in bytes, as in 4:1048576, not {text!r}")
    first, last = max(int(low or item_bytes), item_bytes), int(high)
    if factor < 2:
        raise CommError(f"the step must be 2 or more, not {factor}")
    if last < first:
        raise CommError(f"-m {text}: the largest message is smaller than the smallest, or than one element")
    steps = [first]
    while steps[-1] * factor <= last:
        steps.append(steps[-1] * factor)
    return steps


def algorithms(text: str) -> list[tuple[str, str, int]]:
    """(column, name, chunk bytes; 0 for the default) of `A,B@65536,...`. Raises CommError."""
    columns = []
    for column in filter(None, text.split(",")):
        name, _, chunk = column.partition("@")
        if chunk and not chunk.isdigit():
            raise CommError(f"-a {column}: the chunk after @ must be bytes")
        columns.append((column, name, int(chunk or 0)))
    if not columns:
        raise CommError("-a needs at least one algorithm")
    return columns


def iterations(options: argparse.Namespace, n_bytes: int) -> tuple[int, int]:
    """(warm-up, timed) iterations for messages of `n_bytes`."""
    default = (20, 200) if n_bytes <= LARGE_BYTES else (4, max(8, min(100, (128 << 20) // n_bytes)))
    pair: Sequence[int | None] = (options.warmup, options.iterations)
    warm, timed = (chosen if given is None else given for given, chosen in zip(pair, default))
    return warm, max(timed, 1)
