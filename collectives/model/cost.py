"""Predicts how long a collective takes on a machine, up to thousands of ranks.

The event simulation in `events` is exact for its model, but its run time grows with the number of messages. In a tree
every chunk repeats the same steps, so once the pipeline is full each further chunk adds the same time. A long message
is therefore simulated for some chunks only and extrapolated linearly (within 2 % of the full simulation, all-reduce
within 5 %). All other patterns are simulated in full. `M` and `S` across nodes are timed by `level_cost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from scaffe.collectives.errors import CommError
from scaffe.collectives.model.events import StepArrays, compile_plans, finish_times, repeat
from scaffe.collectives.model.level_cost import level_time
from scaffe.collectives.model.machine import Machine
from scaffe.collectives.planning import planners, trees
from scaffe.collectives.planning.algorithm import Algorithm, Pattern, parse
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.levels import Levels
from scaffe.collectives.topology import Topology

MAX_STEPS = 1 << 21
"""Steps of one event simulation; beyond it, only trees can be predicted."""
MAX_CHUNKS = 512
"""Of a message that is simulated in full."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The case to predict: a collective, an algorithm, the ranks' placement on nodes, and the machine."""

    collective: str
    algorithm: str
    topology: Topology
    machine: Machine

    @property
    def parsed(self) -> Algorithm:
        """The algorithm. Raises CommError on an unknown one."""
        return parse(self.algorithm)

    @property
    def pattern(self) -> Pattern:
        """The algorithm's message pattern. Raises CommError on an unknown one, or one without messages of ours."""
        if (found := self.parsed.pattern) is None:
            raise CommError(f"algorithm {self.algorithm!r} has no messages to predict")
        return found


def predict(setting: Setting, n_bytes: int, chunk_bytes: int) -> float:
    """Predict the time of one call with root 0.

    Returns:
        Seconds from the ranks' common start until the last rank is done.

    Raises:
        CommError: an unknown collective or algorithm, or one other than a tree with too many messages to simulate.
    """
    if n_bytes == 0 or setting.topology.n_ranks == 1:
        return 0.0
    if setting.parsed.is_shared and setting.topology.n_nodes > 1:
        levels = Levels(setting.collective, setting.topology, n_bytes)
        return level_time(levels, setting.pattern, setting.parsed.is_split, chunk_bytes, setting.machine)
    n_full = _full_chunks(setting)
    if n_full is None or n_bytes <= 2 * n_full * chunk_bytes:
        return simulate(setting, n_bytes, chunk_bytes)
    first, second = (_even_time(setting, chunk_bytes, n_chunks) for n_chunks in (n_full, 2 * n_full))
    return second + (n_bytes / chunk_bytes - 2 * n_full) * (second - first) / n_full


def fastest(setting: Setting, n_bytes: int, chunk_choices: tuple[int, ...]) -> tuple[float, int]:
    """Returns the least predicted time in seconds over the chunk lengths in bytes, and the length that gives it.

    Where nothing is extrapolated (`M` and `S` across nodes), chunks of which a message has very many are left out.
    """
    if setting.parsed.is_shared:
        longest = max(chunk_choices)
        chunk_choices = tuple(chunk for chunk in chunk_choices if n_bytes <= MAX_CHUNKS * chunk or chunk == longest)
    return min((predict(setting, n_bytes, chunk_bytes), chunk_bytes) for chunk_bytes in chunk_choices)


def _full_chunks(setting: Setting) -> int | None:
    """Chunks after which a tree's pipeline is in its steady state; None if the pattern is not a tree."""
    if setting.pattern.shape != "tree":
        return None
    shape = trees.build(setting.pattern, setting.topology)
    if setting.collective == "allreduce":
        return 2 * shape.heights[shape.root] + 8
    return 48


def simulate(setting: Setting, n_bytes: int, chunk_bytes: int) -> float:
    """As `predict`, but always simulated in full."""
    if setting.collective in ("reduce", "bcast") and setting.pattern.shape == "tree":
        return _time(setting, _repeated(setting, n_bytes, min(chunk_bytes, n_bytes)))
    call = Call(setting.topology, n_bytes, chunk_bytes)
    n_steps = call.n_ranks * len(planners.plan(setting.collective, setting.pattern, call.n_ranks // 2, call))
    if n_steps > MAX_STEPS:
        raise CommError(f"{setting.collective} by {setting.algorithm} on {call.n_ranks} ranks takes some {n_steps} "
                        f"steps, more than the {MAX_STEPS} that are simulated")
    return _time(setting, compile_plans(planners.plans(setting.collective, setting.pattern, call)))


@lru_cache(maxsize=4096)
def _even_time(setting: Setting, chunk_bytes: int, n_chunks: int) -> float:
    return simulate(setting, chunk_bytes * n_chunks, chunk_bytes)


def _repeated(setting: Setting, n_bytes: int, chunk_bytes: int) -> StepArrays:
    """The steps of a tree reduce or bcast: every chunk repeats the same ones, so only one chunk is planned."""
    call = Call(setting.topology, chunk_bytes, chunk_bytes)
    n_chunks = -(-n_bytes // chunk_bytes)
    one_chunk = compile_plans(planners.plans(setting.collective, setting.pattern, call))
    return repeat(one_chunk, n_chunks, n_bytes - (n_chunks - 1) * chunk_bytes)


def _time(setting: Setting, steps: StepArrays) -> float:
    return float(finish_times(steps, setting.topology, 1, setting.machine).max())
