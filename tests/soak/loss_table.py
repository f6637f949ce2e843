"""Rows of docs/reliability.md: what came of runs whose ranks died, beside runs that nobody disturbed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from tests.soak.loss_log import UNDISTURBED, Outcome, depends_on_nodes

SPREADS = 3
"""How many standard deviations of undisturbed seeds an accuracy may lie below their mean."""


def rows(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table's rows: runs, killed or stopped, others came in, went on, nobody left to train, hung, ended otherwise,
    seconds lost (median, longest), accuracies (mean, standard deviation), those of undisturbed runs with other seeds
    (on two nodes, where that matters), and how many lie more than SPREADS of their standard deviations below these.

    Args:
        runs: the lines of a log.
    """
    for cell in dict.fromkeys((run["strategy"], run["n_ranks"]) for run in runs):
        of_cell = [run for run in runs if (run["strategy"], run["n_ranks"]) == cell]
        total = Outcome()
        killed = [run for run in of_cell if not run["kind"].startswith(UNDISTURBED)]
        for run in killed:
            total.add(Outcome(**{key: value for key, value in run.items() if key in Outcome.__dataclass_fields__}))
        n_hung = sum(": hangs" in wrong for wrong in total.wrong)
        seconds = total.seconds or [0.0]
        whole, nodes = (_accuracies(of_cell, kind) for kind in (UNDISTURBED, f"{UNDISTURBED} node"))
        n_below = sum(_is_below(run, whole, nodes) for run in killed)
        yield (f"| `{cell[0]}` | {cell[1]} | {len(killed)} | {total.killed} | {total.came} | {len(total.accuracies)} | "
               f"{total.n_unmanned} | {n_hung} | {len(total.wrong) - n_hung} | {statistics.median(seconds):.2f} "
               f"({max(seconds):.2f}) | {_spread(total.accuracies)} | {_spread(whole)}"
               f"{f' ({_spread(nodes)})' if nodes else ''} | {n_below} |")


def _accuracies(runs: Sequence[dict[str, Any]], kind: str) -> list[float]:
    return [accuracy for run in runs if run["kind"] == kind for accuracy in run["accuracies"]]


def _is_below(run: dict[str, Any], whole: list[float], nodes: list[float]) -> bool:
    """Whether a run's accuracy is none that undisturbed ones on the same nodes have."""
    others = nodes if run["kind"] == "node" and depends_on_nodes(run["strategy"]) else whole
    if len(others) < 2 or not run["accuracies"]:
        return False
    return bool(run["accuracies"][0] < statistics.mean(others) - SPREADS * statistics.stdev(others))


def _spread(found: Sequence[float]) -> str:
    if len(found) < 2:
        return f"{found[0]:.3f}" if found else ""
    return f"{statistics.mean(found):.3f} ± {statistics.stdev(found):.3f}"
