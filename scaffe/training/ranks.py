"""Agreement of ranks before training: whether a step succeeded on all, and how many threads each computes with."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

from scaffe import threads
from scaffe.collectives.communicator import Communicator
from scaffe.errors import UserError, is_expected, one_line
from scaffe.layers.kernels.backend import Backend, is_device
from scaffe.log import info
from scaffe.nets.net import Net
from scaffe.training.fault_tolerance.replacement import STOP

T = TypeVar("T")


def together(communicator: Communicator, step: Callable[[], T]) -> T:
    """Run a step that may fail, and let all ranks fail if one does. Called by all ranks. Raises UserError if the step
    failed on some rank; every rank raises the message of the lowest such rank.

    Args:
        step: must not communicate, since a rank that fails in it would leave the others waiting.
    """
    error, result = None, None
    try:
        result = step()
    except Exception as caught:
        if not is_expected(caught):
            raise
        error = caught
    if communicator.n_ranks == 1:
        if error is not None:
            raise error
        return result  # type: ignore[return-value]
    messages = communicator.allgather_objects(one_line(error) if error is not None else None)
    failed = [(rank, message) for rank, message in enumerate(messages) if message is not None]
    if failed:
        rank, message = failed[0]
        raise UserError(message if rank == 0 else f"rank {rank}: {message}", everywhere=True) from error
    return result  # type: ignore[return-value]


def with_first_ranks_kernels(communicator: Communicator, kernels: Backend, step: Callable[[], T],
                             needs: Hashable = ()) -> T:
    """As ``together``, for a step that may choose among kernels by timing them. Where ranks are on several nodes, the
    first rank with a card, driver and libraries goes first, and what it has chosen is chosen on every rank that has the
    same: these compute the same bits. ``needs``: what the choices are for; of several the first rank with each goes,
    one after another."""
    if not is_device(kernels) or communicator.topology.n_nodes == 1:
        return together(communicator, step)
    rank, everyone = communicator.rank, communicator.allgather_objects((kernels.kernel_machine(), needs))
    places = list(zip(communicator.topology.node_of_rank, (machine for machine, _ in everyone), strict=True))
    for turn in turns(everyone):
        if rank in turn:
            step = _done_already(step)
        chosen = communicator.allgather_objects(kernels.kernel_choices() if rank in turn else {})
        if places.index(places[rank]) == rank:  # for all of the node that have the same
            kernels.adopt_kernel_choices({name: choice for each in chosen for name, choice in each.items()})
        communicator.barrier()
    return together(communicator, step)


def turns(everyone: Sequence[tuple[str, Hashable]]) -> list[set[int]]:
    """The ranks that choose, of each machine one at a time. ``everyone``: each rank's machine, and what it needs."""
    first = {kind: rank for rank, kind in reversed(list(enumerate(everyone)))}
    by_machine: dict[str, list[int]] = {}
    for (machine, _), rank in sorted(first.items(), key=lambda item: item[1]):
        by_machine.setdefault(machine, []).append(rank)
    return [set(filter(lambda rank: rank is not None, each)) for each in zip_longest(*by_machine.values())]


def _done_already(step: Callable[[], T]) -> Callable[[], T]:
    """Run a step. Returns what returns its result, or raises its error."""
    try:
        result = step()
    except Exception as caught:
        error = caught

        def raises() -> T:
            raise error
        return raises
    return lambda: result


def threads_per_rank(communicator: Communicator, wanted: int) -> int:
    """How many threads this rank computes with.

    Args:
        communicator: its ranks on one node divide the node's cores evenly, where nothing else says how many.
        wanted: a number of threads, or 0 for what the environment says, or this rank's share of the cores.
    """
    return wanted or threads.n_threads(communicator.node_n_ranks)


def most_readers(communicator: Communicator, kernels: Any) -> int:
    """How many reader threads this rank has room for beside kernels of this place."""
    return threads.most_readers(communicator.node_n_ranks, kernels.PLACE != "host")


AUTO = -1  # what ``-threads auto`` and ``-readers auto`` are
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
    ``seconds``: of each rank, those of a pass by the number of threads."""
    return min(sorted(seconds[0]), key=lambda n: max(rank[n] for rank in seconds))


def choose(communicator: Communicator, kernels: Any, make: Callable[[], Net],
           clock: Callable[[], float] = time.perf_counter) -> int:
    """Let all ranks run the net with some numbers of threads, at the same time, and use the best. Called by all ranks.
    Returns the number, the same on all ranks.

    Args:
        make: makes a net to try, which is built for the number of threads then set; may raise UserError.
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
