"""Which strategy ``-strategy auto`` takes. Pure."""

from __future__ import annotations

from scaffe.collectives.topology import Topology

AUTO = "auto"
CHOICES = ("sc-b", "sc-rs", "sc-obr")
"""What ``auto`` may choose."""


def choose_strategy(topology: Topology, can_scatter: bool = True) -> str:
    """The name of the strategy that was fastest on such ranks (docs/overlap.md has the measurements).

    Within one node everything is summed in shared memory and there is nothing to hide behind: sc-b, whose one rank
    sends nothing. Across nodes sc-rs: a rank sends and receives 2 (P-1)/P of the parameters an iteration each way, a
    chain's broadcast and reduction 2, and both hide behind the computing.

    Args:
        topology: which rank sits on which node.
        can_scatter: whether the algorithm that ``-reduce`` names can do what sc-rs needs; if not, sc-obr.
    """
    on_one_node, scattered, rooted = CHOICES
    if topology.n_nodes == 1:
        return on_one_node
    return scattered if can_scatter else rooted
