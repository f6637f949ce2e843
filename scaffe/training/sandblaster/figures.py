"""What a run of the coordinator and its replicas did, as the log says it at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.training.lbfgs.descent import Lbfgs
from scaffe.training.lbfgs.portions import Portions


@dataclass(frozen=True)
class RankFigures:
    """One rank's.

    Attributes:
        waiting: seconds that the replica waited for portions, parameters and verdicts.
        elapsed: seconds since the start, tests and snapshots left out.
        n_bytes, n_messages: sent to other ranks.
    """

    waiting: float
    elapsed: float
    n_bytes: int
    n_messages: int


def summary(optimiser: Lbfgs, portions: Portions, ranks: Sequence[RankFigures], coordinating: float) -> list[str]:
    """The lines.

    Args:
        optimiser, portions: the coordinator's.
        ranks: every replica's figures.
        coordinating: processor time that the coordinator took, in seconds.
    """
    done, pairs, pace = optimiser.progress, optimiser.pairs, portions.pace
    speeds = {name: n / pace.seconds[name] for name, n in pace.n_done.items() if pace.seconds[name] > 0}
    elapsed = max(max(rank.elapsed for rank in ranks), 1e-9)
    lines = [f"L-BFGS: {done.n_steps} steps, {done.n_trials} trials, {done.n_evaluations} passes over a batch; "
             f"{pairs.n_skipped} pairs skipped, history cleared {pairs.n_cleared} times; |gradient| "
             f"{done.slope_norm:.3g}",
             f"Portions: {sum(pace.n_done.values())} computed, {portions.n_again} of them given out again, "
             f"{portions.n_dropped} came too late; {portions.n_fenced} time(s) a replica stood still; "
             f"{sum(rank.waiting for rank in ranks):.1f} s waiting on {len(ranks)} replica(s); "
             f"{sum(rank.n_bytes for rank in ranks) / max(done.n_evaluations, 1):.3g} bytes sent a pass; coordinator "
             f"{coordinating / elapsed:.2%} of a core"]
    if len(speeds) > 1:
        fastest, slowest = max(speeds, key=speeds.__getitem__), min(speeds, key=speeds.__getitem__)
        lines.append(f"Replicas: fastest {fastest} with {speeds[fastest]:.3g} portions a second, slowest {slowest} "
                     f"with {speeds[slowest]:.3g}")
    return lines
