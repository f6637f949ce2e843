"""A job: all ranks of one run, started at once by mpirun or srun; one process without them is a job of one rank.

A rank is bound to the cores near its GPU where SCAFFE_BIND=gpu says so, as job files do.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path

from scaffe import environment, log
from scaffe.cli.main import fail
from scaffe.collectives import launch
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook, report_and_abort
from scaffe.environment import BIND
from scaffe.errors import UserError, is_expected, one_line
from scaffe.layers.kernels import device
from scaffe.nets.devices import Compute, make_context, number_for

DEVICES, PROCESSORS = Path("/sys/bus/pci/devices"), Path("/sys/devices/system/cpu")
WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
Cores = frozenset[int]


def bind(gpus: str, node_rank: int, environment: Mapping[str, str] = os.environ) -> str:
    """Bind this process and the threads it will start; before CUDA and MPI start theirs.

    Args:
        gpus: the GPUs that the node's ranks take in turn, as ``-gpu`` has them; empty: none.
        node_rank: this rank's number on its node.
        environment: the variables to look at.

    Returns:
        what was done, in one line; empty where nothing was.
    """
    n_ranks = launch.node_n_ranks(environment)
    if BIND.get(environment) != "gpu" or not gpus or n_ranks is None or device.missing():
        return ""
    try:
        numbers = [number_for(gpus, rank, device.count()) for rank in range(n_ranks)]
    except UserError:  # which is said later, on all ranks alike
        return ""
    if max(numbers) >= device.count():
        return ""
    near = [near_card(device.bus_id(number)) for number in numbers]
    allowed = os.sched_getaffinity(0)
    own = shares(near, siblings(allowed))[node_rank]
    os.sched_setaffinity(0, own)
    return f"rank {node_rank} of its node: cores {_text(own)}, near GPU {numbers[node_rank]}"


def sleep_between_kernels(environment: MutableMapping[str, str] = os.environ) -> None:
    """If this node's ranks have fewer than two cores each, let OpenMP's threads sleep as soon as they wait, since they
    would occupy a core that another rank needs. Call it before OpenMP is loaded; the environment takes precedence.
    """
    n_ranks = launch.node_n_ranks(environment)
    if n_ranks is not None and 2 * n_ranks > (os.cpu_count() or 1) and WAITING.isdisjoint(environment):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"


def shares(near: Sequence[Cores], groups: Iterable[Cores]) -> list[Cores]:
    """The cores of each of a node's ranks (pure): those near its GPU, shared evenly by the ranks near the same cores;
    if none of these is allowed, all that are.

    Args:
        near: for each rank, the cores near its GPU; empty if that is not known.
        groups: the cores that may be used, as groups that share a core's units, which stay together.
    """
    groups = sorted(groups, key=min)
    found: list[Cores] = []
    for rank, wanted in enumerate(near):
        usable = [group for group in groups if group & wanted] or groups
        alike = [other for other, cores in enumerate(near) if cores == wanted]
        place, n = alike.index(rank), len(alike)
        part = usable[place * len(usable) // n:(place + 1) * len(usable) // n]
        found.append(frozenset().union(*(part or usable)))
    return found


def parse_list(text: str) -> Cores:
    """The numbers in a list as Linux writes it, "0-3,8,10-11"; none if it is empty."""
    found: set[int] = set()
    for word in filter(None, text.strip().split(",")):
        first, _, last = word.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def near_card(bus_id: str, devices: Path = DEVICES) -> Cores:
    """The cores near the PCI device of that bus id; empty if Linux does not say."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        return parse_list((devices / f"{domain[-4:]}:{rest}" / "local_cpulist").read_text())
    except OSError:
        return frozenset()


def siblings(allowed: Collection[int], processors: Path = PROCESSORS) -> list[Cores]:
    """The allowed cores in groups of hardware threads of one core."""
    groups = set()
    for number in allowed:
        try:
            together = parse_list((processors / f"cpu{number}/topology/thread_siblings_list").read_text())
        except OSError:
            together = frozenset()
        groups.add((together | {number}) & frozenset(allowed))
    return list(groups)


def _text(cores: Cores) -> str:
    return ",".join(map(str, sorted(cores)))


def run_job(body: Callable[[Communicator], int], options: Namespace | None = None) -> int:
    """Run a command's body on every rank.

    An error that all ranks have is printed once, by rank 0 or, if that is lost, by the first rank left. An error of one
    rank, or of some, ends the job.

    Args:
        body: the command; it gets the communicator of all ranks and returns the exit code.
        options: the command's flags where it takes ``-gpu``.

    Returns:
        the exit code: the body's, or 1 after an expected error.
    """
    node_rank = launch.node_rank() if launch.has_launcher() else None
    if node_rank is not None:
        sleep_between_kernels()
    if options is not None and node_rank is not None:
        compute = Compute.of(options, node_rank)
        bound = bind(compute.gpus, node_rank)
        if bound and environment.SHOW_BINDING.get():
            print(bound, file=sys.stderr, flush=True)
        make_context(compute)
    communicator = Communicator.world()
    if communicator.rank != 0:
        log.silence(True)
    install_excepthook(communicator)
    try:
        return body(communicator)
    except Exception as error:
        if not is_expected(error):
            raise
        is_shared = getattr(error, "everywhere", False) and getattr(error, "rank_in_subset", None) is None
        if communicator.n_ranks > 1 and not is_shared:
            report_and_abort(communicator, error)
        return fail(one_line(error), 1, error, not log.is_silent())
