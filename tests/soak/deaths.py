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

TOGETHER = 0.3
"""How often the next kill comes at once: while the first one is noticed, or in the recovery."""
AT_ONCE_SECONDS = 0.3
LATE_SECONDS = 0.03
"""After an iteration's line: some iterations, or a test or a snapshot in part."""
STOPPED_SECONDS = 2.0
"""SCAFFE_DEADLINE where ranks are stopped."""


@dataclass(frozen=True)
class Death:
    """What happens next.

    Attributes:
        iteration: it happens after this one has begun to be displayed, where it has not yet,
        delay: and seconds later.
        victims: ranks as they were started; None for any that is alive.
        signal: SIGKILL or SIGSTOP.
    """

    iteration: int
    delay: float
    victims: tuple[int, ...] | None = None
    signal: int = signal.SIGKILL


def _once(chance: random.Random, victims: tuple[int, ...] | None, how: int = signal.SIGKILL) -> Death:
    return Death(chance.randrange(N_ITERATIONS), chance.uniform(0, LATE_SECONDS), victims, how)


def _any(n_ranks: int, chance: random.Random) -> Iterator[Death]:
    deaths = sorted((_once(chance, None) for _ in range(chance.randint(1, n_ranks - 1))), key=lambda d: d.iteration)
    for number, death in enumerate(deaths):
        is_soon = number > 0 and chance.random() < TOGETHER
        yield Death(0, chance.uniform(0, AT_ONCE_SECONDS)) if is_soon else death


def _some(n_victims: int, n_ranks: int, chance: random.Random) -> Iterator[Death]:
    yield _once(chance, tuple(chance.sample(range(n_ranks), n_victims)))


def _node(n_ranks: int, chance: random.Random) -> Iterator[Death]:
    first = chance.choice((0, n_ranks // 2))
    yield _once(chance, tuple(range(first, first + n_ranks // 2)))


KINDS: dict[str, Callable[[int, random.Random], Iterator[Death]]] = {
    "any": _any, "node": _node,
    "root": lambda n, chance: iter([_once(chance, (0,))]),
    "stopped": lambda n, chance: iter([_once(chance, (chance.randrange(n),), signal.SIGSTOP)]),
    "two": lambda n, chance: _some(2, n, chance),
    "all but one": lambda n, chance: _some(n - 1, n, chance)}


def kinds_for(n_ranks: int) -> list[str]:
    """The kinds that differ on so many ranks."""
    return [kind for kind in KINDS if n_ranks > 2 or kind not in ("two", "all but one")]


def variables(kind: str, n_ranks: int) -> dict[str, str]:
    """What the environment of such a run says."""
    return {"node": {"SCAFFE_RANKS_PER_NODE": str(max(n_ranks // 2, 1))},
            "stopped": {"SCAFFE_DEADLINE": f"{STOPPED_SECONDS:g}"}}.get(kind, {})


def disturb(run: DoomedRun, kind: str, n_ranks: int, chance: random.Random) -> list[float]:
    """Lets ranks of a run that has begun die; one at least is left alive. Returns when each died."""
    died = list[float]()
    for death in KINDS[kind](n_ranks, chance):
        run.wait_for(rf"Iteration {death.iteration} \(", HANGS_AFTER_SECONDS)
        time.sleep(death.delay)
        alive = run.alive()
        if run.is_over() or len(alive) < 2:
            break
        is_whole = death.victims is not None and len(alive) >= n_ranks
        victims = [alive[victim] for victim in death.victims or ()] if is_whole else [chance.choice(alive)]
        for victim in victims[: len(alive) - 1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, death.signal)
                died.append(time.monotonic())
    return died
