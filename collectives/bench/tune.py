"""Measures every candidate algorithm and chunk on these ranks and writes what was fastest where, for `auto`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..communicator import Communicator
from ..planners import COLLECTIVES
from ..selection import Choice, Entry, Key, Table, candidates
from .measure import Column, Runner, time_call
from .options import iterations, sizes
from .payload import Payload

HOPELESS, HOPELESS_FROM_BYTES = 3.0, 1 << 20
"""A candidate this many times slower than the fastest, for two lengths running of at least so many bytes, drops out:
what loses on short messages may win on long ones, but not the other way."""
SAME = 1.03
"""A candidate within this factor of the fastest goes on being chosen: fewer changes, same speed."""
DEFAULT_CHUNKS = "61440,262144,1048576"


def parser() -> argparse.ArgumentParser:
    """The argument parser of `tune`."""
    made = argparse.ArgumentParser("scaffe tune", description=__doc__, allow_abbrev=False)
    made.add_argument("-o", "--output", default="scaffe-table.json", metavar="FILE",
                      help="JSON table to write, over what is in it; SCAFFE_TABLE=FILE makes `auto` read it")
    made.add_argument("-c", "--collectives", default=",".join(COLLECTIVES))
    made.add_argument("-m", "--message-size", default="4:67108864", metavar="[MIN:]MAX")
    made.add_argument("--step", type=int, default=4, help="from one message size to the next")
    made.add_argument("--chunks", default=DEFAULT_CHUNKS, help="bytes, with commas between")
    made.add_argument("--places", default="shared,host", help="shared windows, private memory")
    made.add_argument("-a", "--algorithms", default="", help="candidates; default: all that make sense on these nodes")
    made.add_argument("-x", "--warmup", type=int, default=2)
    made.add_argument("-i", "--iterations", type=int, default=None)
    made.add_argument("--source", default="measured by tune", help="a note on where the figures come from")
    return made


def main(argv: Sequence[str]) -> int:
    """Measure, print and write the table on rank 0. Returns the exit code."""
    options = parser().parse_args(argv)
    communicator = Communicator.world()
    communicator.install_excepthook()
    entries = [
        _tune(communicator, options, collective, place)
        for collective in options.collectives.split(",") for place in options.places.split(",")
    ]
    if communicator.rank == 0:
        path = Path(options.output)
        table = Table.read(path) if path.exists() else Table([])
        table.merged(Table(entries)).write(path)
        print(f"wrote {path}: SCAFFE_TABLE={path} makes `auto` use it")
    return 0


def _tune(communicator: Communicator, options: argparse.Namespace, collective: str, place: str) -> Entry:
    topology = communicator.topology
    names = options.algorithms.split(",") if options.algorithms else candidates(collective, topology)
    race = _Race(names, [int(chunk) for chunk in options.chunks.split(",")])
    winners: list[tuple[int, str, int]] = []
    for n_bytes in sizes(options.message_size, 4, options.step):
        figures = _measure(communicator, options, collective, place, n_bytes, race.starters(n_bytes))
        winner = race.judge(figures, n_bytes >= HOPELESS_FROM_BYTES, winners[-1][1:] if winners else None)
        winners.append((n_bytes, *winner))
        if communicator.rank == 0:
            others = "  ".join(f"{name}@{chunk}:{seconds * 1e6:.0f}"
                               for (name, chunk), seconds in sorted(figures.items(), key=lambda item: item[1])[:4])
            print(f"{collective:15}{place:7}{n_bytes:>10} {winner[0]}@{winner[1]}   {others}", flush=True)
    return Entry(Key.of(collective, place, topology), tuple(choices(winners)), options.source)


class _Race:
    """Which candidates still run; the chunk matters only to messages longer than it."""

    def __init__(self, names: Iterable[str], chunks: list[int]) -> None:
        self._candidates = [(name, chunk) for name in names for chunk in (chunks if name not in ("mpi", "M")
                                                                          else chunks[:1])]
        self._n_lost = dict.fromkeys(self._candidates, 0)
        self._smallest = min(chunks)

    def starters(self, n_bytes: int) -> list[tuple[str, int]]:
        """Candidates for messages of n_bytes."""
        return [pair for pair in self._candidates
                if self._n_lost[pair] < 2 and (pair[1] == self._smallest or pair[1] < n_bytes)]

    def judge(self, figures: dict[tuple[str, int], float], is_long: bool,
              last: tuple[str, int] | None) -> tuple[str, int]:
        """The one to use: the fastest, or the last winner where that is as good."""
        best = min(figures, key=lambda pair: figures[pair])
        for pair, seconds in figures.items():
            self._n_lost[pair] = self._n_lost[pair] + 1 if is_long and seconds > HOPELESS * figures[best] else 0
        return last if last in figures and figures[last] <= SAME * figures[best] else best


def _measure(communicator: Communicator, options: argparse.Namespace, collective: str, place: str, n_bytes: int,
             starters: list[tuple[str, int]]) -> dict[tuple[str, int], float]:
    n_elems = n_bytes // 4
    buffer = communicator.alloc(n_elems) if place == "shared" else np.zeros(n_elems, np.float32)
    other = np.zeros(n_elems, np.float32)
    payload = Payload("float32", communicator.n_ranks)
    n_warm, n_timed = iterations(options, n_bytes)
    runners = [Runner(communicator, Column(collective, name, name, chunk, 0), buffer, other)
               for name, chunk in starters]
    for runner in runners:
        runner.verify(payload, is_blocking=True)
    buffer[:], other[:] = 0, 0
    rounds = [[time_call(communicator, runner.start(is_blocking=True), n_warm, -(-n_timed // 3)) for runner in runners]
              for _ in range(3)]
    return {pair: float(np.median(np.concatenate(parts))) for pair, parts in zip(starters, zip(*rounds))}


def choices(winners: list[tuple[int, str, int]]) -> list[Choice]:
    """Winners at ascending lengths as choices, each up to half way (geometrically) to the next change's length."""
    found: list[Choice] = []
    for index, (n_bytes, name, chunk) in enumerate(winners):
        is_last = index + 1 == len(winners)
        if is_last or winners[index + 1][1:] != (name, chunk):
            limit = None if is_last else int((n_bytes * winners[index + 1][0]) ** 0.5)
            found.append(Choice(limit, name, chunk))
    return found
