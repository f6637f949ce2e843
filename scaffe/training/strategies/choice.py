"""The choice that ``-strategy auto`` makes: a pure function of the topology."""

from __future__ import annotations

from scaffe.collectives.topology import Topology

AUTO = "auto"
CHOICES = ("sc-b", "sc-rs", "sc-obr")
"""The strategies that ``auto`` chooses from."""


def choose_strategy(topology: Topology, can_scatter: bool = True) -> str:
    """The name of the strategy that was fastest on such ranks (measurements: docs/overlap.md).

    On one node gradients are summed in shared memory, and overlap gains nothing: sc-b (a rank alone sends nothing).
    Across nodes sc-rs: each of P ranks sends, and receives, 2 (P-1)/P times the parameters' bytes per iteration; with
    a chain's broadcast and reduction it would be 2 times. Both overlap with computing.

    Args:
        topology: which rank is on which node.
        can_scatter: whether the algorithm that ``-reduce`` names has a reduce-scatter, which sc-rs needs; if not,
            sc-obr is chosen across nodes.
    """
    on_one_node, scattered, rooted = CHOICES
    if topology.n_nodes == 1:
        return on_one_node
    return scattered if can_scatter else rooted
