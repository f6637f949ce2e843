"""The benchmarks' command line: the OSU micro-benchmarks' flags, and ours."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.datatypes import DTYPES
from scaffe.collectives.tuning.table import MEMORIES
from scaffe.flags import MOST_BYTES, MOST_RANKS, Flags, whole

CASES = ("reduce", "allreduce", "bcast", "reduce_scatter", "allgather", "latency", "clock", "read", "update")
BYTES = whole(0, MOST_BYTES)
LARGE_BYTES = 8192
"""Above this OSU takes fewer iterations, and so do we."""


def bench_flags() -> Flags:
    """The flags of `bench`."""
    made = Flags("bench", "Measure collectives among the ranks of this job; every element is verified before anything "
                          "is timed.")
    made.argument("case", "what to measure", choices=CASES)
    made.section("As in the OSU micro-benchmarks")
    made.flag("message_size", "4:1048576", "bytes", short="m", metavar="[MIN:]MAX")
    made.flag("iterations", None, "timed iterations; none: by size", kind=whole(1), short="i")
    made.flag("warmup", None, "iterations before timing; none: by size", kind=whole(0), short="x")
    made.flag("full", False, "also minimum, mean and maximum", short="f")
    made.flag("validation", False, "print that each column was verified", short="c")
    made.flag("dtype", "float32", f"element type: {', '.join(DTYPES)}", choices=DTYPES, short="T", metavar="TYPE")
    made.section("Ours")
    made.flag("algorithms", "mpi,auto", "a column each; NAME@BYTES sets the chunk", short="a", metavar="NAME,...")
    made.flag("step", 2, "factor from one message size to the next", kind=whole(2), short="s")
    made.flag("overlap", False, "how much of the non-blocking form hides behind compute", short="o")
    made.flag("check_auto", False, "all columns in place; exit code 1 where auto takes over 1.1 times the best other")
    made.flag("memory", "shared", "shared (the node's windows), host (private), device (a GPU's)",
              choices=MEMORIES, short="d")
    made.flag("unmapped", False, "device buffers that no other rank has mapped (not Communicator.alloc's)")
    made.flag("root", 0, "the root's rank", kind=whole(0, MOST_RANKS))
    made.section("Of clock, read and update, beside the collective that moves the same bytes")
    made.flag("slack", "0", "one parameter server for each slack; inf: asynchronous", metavar="N,...")
    made.flag("servers", 0, "how many of the last ranks hold shards only", kind=whole(0, MOST_RANKS))
    made.flag("scattered", False, "rows in random order, not one slice")
    made.section("Output")
    made.flag("json", "", "write the rows there as well", metavar="FILE")
    return made


def sizes(text: str, item_bytes: int, factor: int = 2) -> list[int]:
    """Parses `-m`.

    Args:
        text: `MIN:MAX` or `MAX`, bytes.
        item_bytes: bytes per element, the least length.
        factor: from one length to the next, 2 or more.

    Returns:
        Lengths in bytes, ascending.

    Raises:
        CommError: on another form or an empty range.
    """
    low, colon, high = text.rpartition(":")
    try:
        first, last = max(BYTES(low) if colon else item_bytes, item_bytes), BYTES(high)
    except ValueError:
        raise CommError(f"-m needs MIN:MAX in bytes from {BYTES}, as in 4:1048576, not {text!r}",
                        everywhere=True) from None
    if last < first:
        raise CommError(f"-m {text}: the largest message is smaller than the smallest, or than one element",
                        everywhere=True)
    steps = [first]
    while steps[-1] * factor <= last:
        steps.append(steps[-1] * factor)
    return steps


def algorithms(text: str) -> list[tuple[str, str, int]]:
    """Parses `-a`.

    Args:
        text: `A,B@65536,...`: algorithms, with a chunk in bytes where one is given.

    Returns:
        Per column its title, the algorithm's name, and the chunk in bytes (0: the default).

    Raises:
        CommError: on no column, or a chunk that is no number.
    """
    columns = []
    for column in filter(None, text.split(",")):
        name, _, chunk = column.partition("@")
        try:
            columns.append((column, name, BYTES(chunk or "0")))
        except ValueError as error:
            raise CommError(f"-a {column}: the chunk after @, in bytes, {error}", everywhere=True) from None
    if not columns:
        raise CommError("-a needs at least one algorithm", everywhere=True)
    return columns


def iterations(options: Namespace, n_bytes: int) -> tuple[int, int]:
    """Returns how many warm-up and timed iterations messages of `n_bytes` get: as the flags say, else by size."""
    default = (20, 200) if n_bytes <= LARGE_BYTES else (4, max(8, min(100, (128 << 20) // n_bytes)))
    pair: Sequence[int | None] = (options.warmup, options.iterations)
    warm, timed = (chosen if given is None else given for given, chosen in zip(pair, default, strict=True))
    return warm, max(timed, 1)
