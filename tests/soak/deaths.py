"""Which ranks of a training die, when and how: chosen by chance, by kinds."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.soak.doomed_run import HANGS_AFTER_SECONDS, N_ITERATIONS, DoomedRun

TO_THE_LAST = 0.7
"""How often ranks die one after another until one is left; else some are left at the end."""
AT_ONCE_SECONDS = 0.3
LATE_SECONDS = 0.03
"""After an iteration's line: some iterations, so that what is hit first is a collective or the passes between."""
SHORTLY_SECONDS = 0.01
"""After the line that begins a snapshot or a test, which take some milliseconds."""
STOPPED_SECONDS = 2.0
"""SCAFFE_DEADLINE where ranks are stopped."""
MOMENTS = {"iteration": "", "snapshot": "Snapshotting to", "test": "Testing net", "recovery": ""}
"""When ranks die, and the line that begins it."""


@dataclass(frozen=True)
class Death:
    """What happens next.

    Attributes:
        iteration: not before this one has begun to be displayed; -1: before the first one is.
        moment: of MOMENTS: after the next line of that kind, or, for a recovery, AT_ONCE_SECONDS after the last death
            at most.
        n_victims: how many at once.
        is_root: whether the first rank that is left is one of them.
        signal: SIGKILL or SIGSTOP.
    """

    iteration: int
    moment: str = "iteration"
    n_victims: int = 1
    is_root: bool = False
    signal: int = signal.SIGKILL


def _rest(n_left: int, chance: random.Random, n_at_once: int = 1, is_root: bool = False, after: int = 0
          ) -> Iterator[Death]:
    """Ranks die one after another, or by so many, until one is left; sometimes fewer."""
    n_more = -(-(n_left - 1) // n_at_once)
    n_more = n_more if chance.random() < TO_THE_LAST else chance.randint(0, n_more)
    for iteration in sorted(chance.randrange(after, N_ITERATIONS) for _ in range(n_more)):
        yield Death(iteration, chance.choice(list(MOMENTS)), n_at_once, is_root)


def _first(n_ranks: int, n_victims: int, chance: random.Random, **how: object) -> Iterator[Death]:
    """Some die at once; then others follow."""
    begin = chance.randrange(N_ITERATIONS * 2 // 3)
    yield Death(begin, chance.choice(["iteration", "snapshot", "test"]), n_victims, **how)  # type: ignore[arg-type]
    yield from _rest(n_ranks - n_victims, chance, after=begin)


def _beginning(n_ranks: int, chance: random.Random) -> Iterator[Death]:
    yield Death(-1)
    yield from _rest(n_ranks - 1, chance)


def _at(moment: str, n_ranks: int, chance: random.Random) -> Iterator[Death]:
    iterations = sorted(chance.randrange(N_ITERATIONS) for _ in range(n_ranks - 1))
    return (Death(iteration, moment, is_root=chance.random() < 1 / 2) for iteration in iterations)


KINDS: dict[str, Callable[[int, random.Random], Iterator[Death]]] = {
    "any": lambda n, chance: _first(n, 1, chance), "node": lambda n, chance: _first(n, n // 2, chance),
    "root": lambda n, chance: _rest(n, chance, is_root=True) if n > 2 else _first(n, 1, chance, is_root=True),
    "stopped": lambda n, chance: _first(n, 1, chance, signal=signal.SIGSTOP),
    "snapshot": lambda n, chance: _at("snapshot", n, chance), "test": lambda n, chance: _at("test", n, chance),
    "first iteration": _beginning,
    "two": lambda n, chance: _rest(n, chance, 2), "all but one": lambda n, chance: _first(n, n - 1, chance)}


def kinds_for(n_ranks: int) -> list[str]:
    """The kinds that differ on so many ranks."""
    return [kind for kind in KINDS if n_ranks > 2 or kind not in ("two", "all but one")]


def variables(kind: str, n_ranks: int) -> dict[str, str]:
    """What the environment of such a run says; "node" has two nodes."""
    return {"node": {"SCAFFE_RANKS_PER_NODE": str(max(n_ranks // 2, 1))},
            "stopped": {"SCAFFE_DEADLINE": f"{STOPPED_SECONDS:g}"}}.get(kind, {})


def disturb(run: DoomedRun, kind: str, n_ranks: int, chance: random.Random) -> list[float]:
    """Lets ranks of a run that has begun die; one at least is left alive. Returns when each died: for one that was
    stopped, when it was to be ended."""
    died, hit = list[float](), set[int]()
    for death in KINDS[kind](n_ranks, chance):
        _wait(run, death, chance)
        alive = [pid for pid in run.alive() if pid not in hit]
        if run.is_over() or len(alive) < 2:
            break
        victims = _victims(death, alive, chance) if hit or kind != "node" else _node(alive, n_ranks, chance)
        for victim in victims[: len(alive) - 1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, death.signal)
                hit.add(victim)
                died.append(time.monotonic() + STOPPED_SECONDS * (death.signal == signal.SIGSTOP))
    return died


def _wait(run: DoomedRun, death: Death, chance: random.Random) -> None:
    if death.iteration < 0 or death.moment == "recovery":
        time.sleep(chance.uniform(0, AT_ONCE_SECONDS))
        return
    run.wait_for(rf"Iteration {death.iteration} \(", HANGS_AFTER_SECONDS)
    if line := MOMENTS[death.moment]:
        run.wait_for(line, HANGS_AFTER_SECONDS, 1 + len(run.times_of(line)))
        time.sleep(chance.uniform(0, SHORTLY_SECONDS))
    else:
        time.sleep(chance.uniform(0, LATE_SECONDS))


def _victims(death: Death, alive: list[int], chance: random.Random) -> list[int]:
    first = alive[:1] if death.is_root else []
    return [*first, *chance.sample(alive[len(first):], min(death.n_victims - len(first), len(alive) - len(first)))]


def _node(alive: list[int], n_ranks: int, chance: random.Random) -> list[int]:
    begin = chance.choice((0, n_ranks // 2))
    return alive[begin : begin + n_ranks // 2]
