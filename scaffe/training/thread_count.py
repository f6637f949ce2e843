"""How many threads each rank computes with, where that is measured: more than one is not always faster."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.log import info
from scaffe.nets.net import Net
from scaffe.training.ranks import threads_per_rank, together
from scaffe.training.survival.options import STOP

AUTO = -1  # what ``-threads auto`` is
N_PASSES = 3


def can_measure(options: Namespace, role: Any, kernels: Any) -> bool:
    """Whether ``-threads auto`` measures: not where a device computes, ranks share nets, memory is limited, or lost
    ranks are outlived, for whoever comes later cannot measure with the others."""
    return bool(options.threads == AUTO and kernels.PLACE == "host" and role.division is None and not options.memory
                and options.on_rank_loss == STOP)


def candidates(most: int) -> list[int]:
    """The numbers of threads to try: the most that there may be, and halves of that down to one."""
    return [most, *candidates(most // 2)] if most > 1 else [1]


def fastest(seconds: Sequence[Mapping[int, float]]) -> int:
    """The number with which the slowest rank is the fastest; of equal ones the least.

    Args:
        seconds: of each rank, the seconds of a pass by the number of threads.
    """
    return min(sorted(seconds[0]), key=lambda n: max(rank[n] for rank in seconds))


def choose(communicator: Communicator, kernels: Any, make: Callable[[], Net],
           clock: Callable[[], float] = time.perf_counter) -> int:
    """Let all ranks run the net with some numbers of threads, at the same time, and use the best. Called by all ranks.

    Args:
        communicator: the ranks.
        kernels: the CPU's backend, whose number of threads is set.
        make: makes a net to try, which is built for the number of threads then set; may raise UserError.
        clock: seconds.

    Returns:
        the number, the same on all ranks.
    """
    most = min(communicator.allgather_objects(threads_per_rank(communicator, 0)))
    numbers, found = candidates(most), {}
    for n in numbers if len(numbers) > 1 else ():
        kernels.set_threads(n)
        net = together(communicator, make)
        found[n] = together(communicator, lambda net=net: _seconds(net, clock))  # type: ignore[misc]
        net.close()
    best = fastest(communicator.allgather_objects(found)) if found else most
    kernels.set_threads(best)
    spent = "".join(f", {n}: {1e3 * seconds:.3g} ms" for n, seconds in found.items())
    info(f"Threads: {best} a rank (forward and backward{spent})" if found else f"Threads: {best} a rank")
    return best


def _seconds(net: Net, clock: Callable[[], float]) -> float:
    """The shortest of some passes, reading left out, after one that compiles what is missing."""
    spent = []
    for _ in range(1 + N_PASSES):
        started, read = clock(), net.data_seconds
        net.clear_param_diffs()
        net.forward_backward()
        spent.append(clock() - started - (net.data_seconds - read))
    return min(spent[1:])
