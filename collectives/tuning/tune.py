"""Measures every candidate algorithm and chunk on these ranks and writes what was fastest where, for `auto`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from scaffe.atomic_files import check_writable
from scaffe.collectives.bench import payload as where
from scaffe.collectives.bench.measure import Column, Runner, time_in_turns, undisturbed
from scaffe.collectives.bench.options import iterations, sizes
from scaffe.collectives.bench.payload import Payload
from scaffe.collectives.bench.report import on_root
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import COLLECTIVES
from scaffe.collectives.planning.planners import short_names, spans_nodes
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.table import Choice, TuningEntry, TuningKey, TuningTable
from scaffe.flags import MOST_BYTES, Flags, whole

DROP_FACTOR, DROP_FROM_BYTES = 3.0, 1 << 20
"""A candidate this many times slower than the fastest, at two lengths running of at least so many bytes, drops out:
what loses on short messages may win on long ones, but not the other way."""
SAME = 1.05
"""Candidates within this factor of the fastest count as equal; the one that stays so for most lengths is chosen."""
ROUNDS = 5
"""How often candidates take turns; of each the least disturbed round counts."""
FAMILIAR = ("mpi", "M")
"""Preferred among equals, in this order."""
Candidate = tuple[str, int]
"""An algorithm and its chunk in bytes."""
MULTIPROCESSORS = (8, 16, 24, 32, 48, 64, 128)
"""That a sum over other GPUs' memory may fill, as measured on device memory."""
N_SHORT_CHUNKS, SHORT_CHUNK_BYTES = 256, 16 << 10
CHUNK = whole(1, MOST_BYTES)
DEFAULT_CHUNK_BYTES = 1 << 20
DEFAULT_CHUNKS = {"shared": "61440,262144,1048576", "host": "61440,262144,1048576",
                  "device": "262144,1048576,4194304,16777216"}
"""By kind of memory, bytes: a chunk in GPU memory also costs kernel launches and events, so these are longer."""


def tune_flags() -> Flags:
    """Declares the flags of `tune`."""
    made = Flags("tune", "Measure every candidate algorithm and chunk on these ranks and write what was fastest where.")
    made.flag("output", "scaffe-table.json", "table to write; SCAFFE_TABLE=FILE makes `auto` read it", short="o",
              metavar="FILE")
    made.section("What is measured")
    made.flag("collectives", ",".join(COLLECTIVES), "the collectives", short="c", metavar="NAME,...")
    made.flag("memory", "shared,host", "kinds: shared (the node's windows), host (private), device (a GPU's)",
              metavar="KIND,...")
    made.flag("message_size", "4:67108864", "bytes", short="m", metavar="[MIN:]MAX")
    made.flag("step", 4, "factor from one message size to the next", kind=whole(2))
    made.flag("algorithms", "", "candidates; none: all that make sense here", short="a", metavar="NAME,...")
    made.flag("chunks", "", f"bytes; none: {DEFAULT_CHUNKS['host']}; for device memory {DEFAULT_CHUNKS['device']}",
              metavar="N,...")
    made.section("How")
    made.flag("warmup", 2, "iterations before timing", kind=whole(0), short="x")
    made.flag("iterations", None, "timed iterations; none: by size", kind=whole(1), short="i")
    made.flag("source", "measured by tune", "a note on where the figures come from", metavar="TEXT")
    return made


def main(argv: Sequence[str]) -> int:
    """Runs the command `tune`: measures, prints, and writes the table on rank 0.

    Returns:
        The exit code, 0.

    Raises:
        CommError: where the table cannot be read or written, or an element was wrong.
        UsageError: on flags that cannot be.
    """
    flags = tune_flags()
    options = flags.parse(argv)
    try:
        if not [CHUNK(word) for word in filter(None, options.chunks.split(","))] and options.chunks:
            raise ValueError
    except ValueError:
        flags.error(f"-chunks must be bytes from {CHUNK} with commas between, got {options.chunks!r}")
    for collective in options.collectives.split(","):
        if collective not in COLLECTIVES:
            flags.error(f"-collectives takes {', '.join(COLLECTIVES)}, not {collective!r}")
    for memory in options.memory.split(","):
        if memory not in DEFAULT_CHUNKS:
            flags.error(f"-memory takes {', '.join(DEFAULT_CHUNKS)}, not {memory!r}")
    communicator = Communicator.world()
    communicator.install_excepthook()
    path = Path(options.output)
    on_root(communicator, lambda: _found(path))  # before anything is measured
    has_device = "device" in options.memory.split(",")
    wide = _multiprocessors(communicator, options) if has_device else None
    chunk_seconds = _chunk_seconds(communicator, options) if has_device and communicator.n_ranks > 1 else None
    entries = [
        _tune(communicator, options, collective, memory)
        for collective in options.collectives.split(",") for memory in options.memory.split(",")
    ]
    on_root(communicator, lambda: _found(path).merged(TuningTable(entries, wide, chunk_seconds)).write(path))
    if communicator.rank == 0:
        print(f"wrote {path}: SCAFFE_TABLE={path} makes `auto` use it")
    return 0


def _found(path: Path) -> TuningTable:
    check_writable(path, CommError)
    return TuningTable.read(path) if path.exists() else TuningTable([])


def _tune(communicator: Communicator, options: Namespace, collective: str, memory: str) -> TuningEntry:
    topology = communicator.topology
    names = options.algorithms.split(",") if options.algorithms else candidates(collective, topology)
    if memory == "device":
        names = _possible(communicator, collective, names if options.algorithms else [*names, "nccl"])
    race = Race(names, [int(chunk) for chunk in filter(None, (options.chunks or DEFAULT_CHUNKS[memory]).split(","))])
    lengths = sizes(options.message_size, 4, options.step)
    if memory != "device":
        where.check_room(communicator, lengths[-1])
    figures: list[dict[Candidate, float]] = []
    for n_bytes in lengths:
        figures.append(_measure(communicator, options, collective, memory, n_bytes, race.starters(n_bytes)))
        race.judge(figures[-1], n_bytes >= DROP_FROM_BYTES)
        if communicator.rank == 0:
            best = "  ".join(f"{name}@{chunk}:{seconds * 1e6:.0f}"
                             for (name, chunk), seconds in sorted(figures[-1].items(), key=lambda item: item[1])[:5])
            print(f"{collective:15}{memory:7}{n_bytes:>10}   {best}", flush=True)
    winners = [(n_bytes, *winner) for n_bytes, winner in zip(lengths, fewest_changes(figures), strict=True)]
    return TuningEntry(TuningKey.of(collective, memory, topology), tuple(choices(winners)), options.source)


def _multiprocessors(communicator: Communicator, options: Namespace) -> int | None:
    """Finds how few multiprocessors sum a node's buffers as fast as more of them, on the longest buffer; the rest are
    free to compute. None where GPUs cannot map one another's memory."""
    from scaffe.collectives.cuda.kernels import kernels

    name = "M" if communicator.topology.n_nodes == 1 else "SR"
    if communicator.node_n_ranks == 1 or not _possible(communicator, "allreduce", [name]):
        return None
    n_bytes, figures = sizes(options.message_size, 4, options.step)[-1], {}
    for count in MULTIPROCESSORS:
        kernels().allow(count)
        (figures[count],) = _measure(communicator, options, "allreduce", "device", n_bytes,
                                     [(name, DEFAULT_CHUNK_BYTES)]).values()
    kernels().allow(None)
    found = fewest(figures)
    if communicator.rank == 0:
        times = "  ".join(f"{count}:{seconds * 1e6:.0f}" for count, seconds in figures.items())
        print(f"sums of {n_bytes} bytes, us by multiprocessors: {times}; {found} are enough")
    agreed: int = communicator.bcast_object(found)
    return agreed


def _chunk_seconds(communicator: Communicator, options: Namespace) -> float:
    """What a chunk costs a rank: by a chain of chunks so short that their way counts for little."""
    (seconds,) = _measure(communicator, options, "reduce", "device", N_SHORT_CHUNKS * SHORT_CHUNK_BYTES,
                          [("C", SHORT_CHUNK_BYTES)]).values()
    agreed: float = communicator.bcast_object(seconds / N_SHORT_CHUNKS)
    if communicator.rank == 0:
        print(f"a chunk costs {agreed * 1e6:.0f} us")
    return agreed


def fewest(figures: Mapping[int, float]) -> int:
    """Returns the least count whose time is as good as the fastest's. figures: seconds by count."""
    return min(count for count, seconds in figures.items() if seconds <= SAME * min(figures.values()))


def _possible(communicator: Communicator, collective: str, names: Sequence[str]) -> list[str]:
    """Those of `names` that these ranks can run on device memory: M and S need CUDA IPC, NCCL a GPU for each rank.

    The MPI library's own calls are left out: their non-blocking forms may crash there.
    """
    array, found = where.of("device", communicator).private(1, "float32"), []
    for name in names:
        try:
            if name != "mpi":
                getattr(communicator, collective)(array, algorithm=name)
                found.append(name)
        except CommError as error:
            if not error.everywhere:
                raise
            if communicator.rank == 0:
                print(f"{collective}: without {name}: {error}", flush=True)
    return found


def fewest_changes(figures: Sequence[Mapping[Candidate, float]]) -> list[Candidate]:
    """Picks for every length a candidate as good as the fastest, such that the choice changes least often. ``figures``:
    per length, ascending: seconds by candidate. Returns a candidate per length."""
    good = [[pair for pair in row if row[pair] <= SAME * min(row.values())] for row in figures]
    chosen: list[Candidate] = []

    def lasts(pair: Candidate) -> int:
        return sum(1 for _ in takewhile(lambda row: pair in row, good[len(chosen):]))

    def rank(pair: Candidate) -> tuple[int, int, float]:
        familiar = FAMILIAR.index(pair[0]) if pair[0] in FAMILIAR else len(FAMILIAR)
        return -lasts(pair), familiar, figures[len(chosen)][pair]

    while len(chosen) < len(figures):
        pair = min(good[len(chosen)], key=rank)
        chosen += [pair] * lasts(pair)
    return chosen


class Race:
    """Keeps track of the candidates that are still worth measuring."""

    def __init__(self, names: Iterable[str], chunks: list[int]) -> None:
        """``chunks``: bytes; `mpi` and `M` have none and are measured once."""
        self._candidates = [(name, chunk) for name in names for chunk in (chunks if name not in ("mpi", "M")
                                                                          else chunks[:1])]
        self._n_lost = dict.fromkeys(self._candidates, 0)
        self._smallest = min(chunks)

    def starters(self, n_bytes: int) -> list[Candidate]:
        """Lists the candidates for messages of n_bytes: with the smallest chunk, or one shorter than the message."""
        return [pair for pair in self._candidates
                if self._n_lost[pair] < 2 and (pair[1] == self._smallest or pair[1] < n_bytes)]

    def judge(self, figures: Mapping[Candidate, float], is_long: bool) -> None:
        """Counts losses; two running drop a candidate. figures: seconds by candidate; is_long: losses count here."""
        best = min(figures.values())
        for pair, seconds in figures.items():
            self._n_lost[pair] = self._n_lost[pair] + 1 if is_long and seconds > DROP_FACTOR * best else 0


def _measure(communicator: Communicator, options: Namespace, collective: str, memory: str, n_bytes: int,
             starters: list[Candidate]) -> dict[Candidate, float]:
    n_elems = n_bytes // 4
    buffers = where.of(memory, communicator)
    is_window = memory != "host"
    buffer = buffers.window(communicator, n_elems, "float32") if is_window else buffers.private(n_elems, "float32")
    other = buffers.private(n_elems, "float32")
    payload = Payload("float32", communicator.n_ranks, buffers)
    n_warm, n_timed = iterations(options, n_bytes)
    columns = [Column(collective, name, name, chunk, 0, is_in_place=True) for name, chunk in starters]
    runners = [Runner(communicator, column, buffer, other, buffers.synchronize) for column in columns]
    for runner in runners:
        runner.verify(payload, is_blocking=True)
    buffer[...] = other[...] = 0
    calls = [runner.start(is_blocking=True) for runner in runners]
    measured = time_in_turns(communicator, calls, n_warm, n_timed, ROUNDS)
    return {pair: undisturbed(rounds) for pair, rounds in zip(starters, measured, strict=True)}


def choices(winners: list[tuple[int, str, int]]) -> list[Choice]:
    """Turns winners into a table's choices, with borders half way (geometrically) between lengths. ``winners``: (bytes,
    algorithm, chunk bytes), by ascending length. Returns choices by ascending max_bytes, the last without a limit."""
    found: list[Choice] = []
    for index, (n_bytes, name, chunk) in enumerate(winners):
        is_last = index + 1 == len(winners)
        if is_last or winners[index + 1][1:] != (name, chunk):
            limit = None if is_last else int((n_bytes * winners[index + 1][0]) ** 0.5)
            found.append(Choice(limit, name, chunk))
    return found


def candidates(collective: str, topology: Topology) -> list[str]:
    """Lists the algorithms worth measuring. Returns names, the MPI library's own call first. Raises CommError on an
    unknown collective."""
    if collective not in COLLECTIVES:
        raise CommError(f"no collective is called {collective!r}: known are {', '.join(COLLECTIVES)}")
    shared = topology.n_nodes < topology.n_ranks
    spans = topology.n_nodes > 1
    flat = short_names(collective) if topology.n_ranks > 1 else []
    above = [f"M{name}" for name in flat] if spans_nodes(collective, topology) else []
    above += [f"S{name}" for name in flat] if min(map(len, topology.nodes)) > 1 else []  # S of one share is M
    found = ["mpi", *(["M"] if shared and not spans else []), *(above if shared and spans else []), *flat]
    sizes = (["node"] if shared and spans else []) + [str(ranks) for ranks in (4, 8, 16) if ranks < topology.n_ranks]
    return found + [f"{levels}-{size}" for levels in ("CB", "CC") for size in sizes if "C" in flat]
