"""Looks strategies up by name, chooses one for ``auto``, and adds their flags to ``scaffe train``."""

from __future__ import annotations

from argparse import Namespace

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.device_choice import ONE_CARD, Links
from scaffe.errors import UsageError, UserError
from scaffe.flags import Flags
from scaffe.flags.flag import Flag
from scaffe.training.strategies.base import Strategy, strategies

AUTO = "auto"
CHOICES = ("sc-b", "sc-rs", "sc-obr")
"""The strategies that ``auto`` chooses from."""


def look_up(name: str, algorithm: str, communicator: Communicator, on_device: bool = False,
            solver_type: str = "") -> type[Strategy]:
    """The strategy of a name. Raises UserError, CommError on all ranks, if no strategy, or no algorithm, is called
    that, or the strategy does not go with the solver's type.

    Args:
        on_device: whether nets compute on GPUs, which ``auto`` goes by too.
        solver_type: the solver's; "" or one that an update rule carries out goes with most strategies.
    """
    communicator.algorithms.check(algorithm)
    wanted = next((own for own in _of_one_type() if strategies.get(own).roles.solver_type == solver_type), "")
    if name == AUTO and wanted:
        name = wanted
    if name == AUTO:
        links = communicator.links() if on_device else None
        name = choose_strategy(communicator.topology, communicator.algorithms.can("reduce_scatter", algorithm), links)
    try:
        found = strategies.get(name)
    except KeyError as error:
        raise UserError(error.args[0], everywhere=True) from error
    if wanted and name != wanted:
        raise UserError(f"a solver of type {solver_type} trains with -strategy {wanted}, not {name}", everywhere=True)
    if found.roles.solver_type and not wanted and solver_type:
        raise UserError(f"-strategy {name} is for solvers of type {found.roles.solver_type}, not {solver_type}",
                        everywhere=True)
    return found


def choose_strategy(topology: Topology, can_scatter: bool = True, links: Links | None = None) -> str:
    """The name of the strategy that was fastest on such ranks (measured on CPUs: docs/benchmarks.md).

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


def add_flags(flags: Flags) -> None:
    """Add ``-strategy``, and the flags of all strategies."""
    flags.flag("strategy", AUTO, f"what is sent when: {AUTO}, {', '.join(strategies.names())}", metavar="NAME")
    for name in strategies.names():
        strategies.get(name).roles.flags(flags)


def check_flags(options: Namespace) -> None:
    """Check that the chosen strategy has every flag that was given a value other than its default. Raises UsageError,
    one line that names the flag and the strategies that have it.

    Args:
        options: the values of all flags. ``-strategy auto`` accepts the flags of every strategy that it may choose.
    """
    own: dict[str, dict[str, Flag]] = {}
    for name in strategies.names():
        flags = Flags("train", "")
        strategies.get(name).roles.flags(flags)
        own[name] = flags.flags
    chosen = (*CHOICES, *_of_one_type()) if options.strategy == AUTO else (options.strategy,)
    if not set(chosen) <= set(own):
        return  # an unknown one is refused where it is looked up
    for flag in {flag.name: flag for each in own.values() for flag in each.values()}.values():
        if getattr(options, flag.name) != flag.default and not any(flag.name in own[name] for name in chosen):
            users = ", ".join(name for name, each in own.items() if flag.name in each)
            raise UsageError(f"train: -{flag.name} is a flag of {users}, not of -strategy {options.strategy}",
                             everywhere=True)


def _of_one_type() -> list[str]:
    return [name for name in strategies.names() if strategies.get(name).roles.solver_type]
