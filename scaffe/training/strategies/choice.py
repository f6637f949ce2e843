"""Which strategy a name means, and the choice that ``-strategy auto`` makes: a pure function of the topology."""

from __future__ import annotations

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.links import ONE_CARD, Links
from scaffe.errors import UserError
from scaffe.training.strategies.base import Strategy, strategies

AUTO = "auto"
CHOICES = ("sc-b", "sc-rs", "sc-obr")
"""The strategies that ``auto`` chooses from."""


def look_up(name: str, algorithm: str, communicator: Communicator, on_device: bool = False,
            solver_type: str = "") -> type[Strategy]:
    """The strategy of a name.

    Args:
        name: a strategy's, or "auto".
        algorithm: the collective algorithm that it is to use.
        communicator: all ranks; ``auto`` goes by where they are.
        on_device: whether nets compute on GPUs, which ``auto`` goes by too.
        solver_type: the solver's; "" or one that an update rule carries out goes with most strategies.

    Raises:
        UserError, CommError: on all ranks, if no strategy, or no algorithm, is called that, or the strategy does not go
            with the solver's type.
    """
    communicator.check(algorithm)
    wanted = next((own for own in strategies.names() if strategies.get(own).solver_type == solver_type), "") * bool(
        solver_type)
    if name == AUTO and wanted:
        name = wanted
    if name == AUTO:
        links = communicator.links() if on_device else None
        name = choose_strategy(communicator.topology, communicator.can("reduce_scatter", algorithm), links)
    try:
        found = strategies.get(name)
    except KeyError as error:
        raise UserError(error.args[0], everywhere=True) from error
    if wanted and name != wanted:
        raise UserError(f"a solver of type {solver_type} trains with -strategy {wanted}, not {name}", everywhere=True)
    if found.solver_type and not wanted and solver_type:
        raise UserError(f"-strategy {name} is for solvers of type {found.solver_type}, not {solver_type}",
                        everywhere=True)
    return found


def choose_strategy(topology: Topology, can_scatter: bool = True, links: Links | None = None) -> str:
    """The name of the strategy that was fastest on such ranks (measurements of CPUs: docs/overlap.md).

    On one node of CPUs gradients are summed in shared memory by the cores that compute, and overlap gains nothing:
    sc-b (a rank alone sends nothing). Across nodes, and between GPUs of one node, sc-rs: each of P ranks sends, and
    receives, 2 (P-1)/P times the parameters' bytes per iteration; with a chain's broadcast and reduction it would be 2
    times. Both overlap with computing: a GPU's sums fill a part of its multiprocessors and wait for NVLink or PCI
    Express while the others compute, and copies through host memory have engines of their own (assumed, not measured).
    Ranks of one node that share a single GPU gain nothing by overlap, as those of CPUs: sc-b. With sc-rs each rank
    updates its own part only; and a root's broadcast would leave a node by one of its ports.

    Args:
        topology: which rank is on which node.
        can_scatter: whether the algorithm that ``-reduce`` names has a reduce-scatter, which sc-rs needs; if not,
            sc-obr is chosen instead.
        links: what joins the ranks' GPUs; None: nets compute on CPUs.
    """
    on_one_node, scattered, rooted = CHOICES
    if topology.n_ranks == 1 or (topology.n_nodes == 1 and (links is None or links.within == ONE_CARD)):
        return on_one_node
    return scattered if can_scatter else rooted
