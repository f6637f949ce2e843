"""Memory that all ranks of one node map: the tables' values, the workers' updates, the mailboxes."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.shared import memfd
from scaffe.collectives.transport.available import shortage

ALIGNMENT = 64  # bytes: a cache line
Create = Callable[[int], tuple[int, mmap.mmap]]
"""Makes so many bytes that processes may share: their descriptor, and the pages. Raises OSError."""


def aligned(n_bytes: int) -> int:
    """``n_bytes`` rounded up to a multiple of a cache line."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def common(communicator: Communicator, n_bytes: int) -> np.ndarray:
    """Allocate zeroed memory that all ranks of a node read and write. Collective among the ranks of all nodes.

    No page has been touched yet, so each page is placed on the NUMA node of the core that first writes to it. The
    memory is freed when the last rank drops its reference.

    Args:
        communicator: all ranks.
        n_bytes: its length, the same on all ranks of a node.

    Returns:
        uint8 (n_bytes,).

    Raises:
        CommError: on every rank, if a node has less memory left, or it cannot be mapped.
    """
    fault = shortage(n_bytes, f"a parameter server of {n_bytes} bytes")
    pages = mapped(communicator, n_bytes, None if communicator.node_n_ranks == 1 else memfd.create, fault)
    return np.zeros(n_bytes, np.uint8) if pages is None else np.frombuffer(pages, np.uint8)[:n_bytes]


def mapped(communicator: Communicator, n_bytes: int, create: Create | None, fault: str = "") -> mmap.mmap | None:
    """Pages that one rank of a node makes, and all of its ranks map. Collective among the ranks of all nodes.

    Args:
        communicator: all ranks.
        n_bytes: how many, the same on all ranks of a node.
        create: what the first of a node's ranks makes them with; None on nodes that want none.
        fault: why this rank cannot have any; empty where it may.

    Raises:
        CommError: on every rank, if one has a fault, or cannot make or map them.
    """
    pages, fd = None, -1
    try:
        if communicator.node_rank == 0 and create is not None and not fault:
            fd, pages = create(n_bytes)
    except OSError as error:
        fault = str(error)
    leader = communicator.topology.leader(communicator.rank)
    pid, number, _ = _all_well(communicator, (os.getpid(), fd, fault))[leader]
    try:
        if pages is None and create is not None:
            pages = memfd.attach(pid, number, n_bytes)
    except OSError as error:
        fault = str(error)
    _all_well(communicator, (0, 0, fault))
    if fd >= 0:
        os.close(fd)
    return pages


def _all_well(communicator: Communicator, own: tuple[int, int, str]) -> list[tuple[int, int, str]]:
    """Every rank's triple. Raises CommError, on every rank, where the last of one is a fault."""
    found = communicator.allgather_objects(own)
    fault = next((text for _, _, text in found if text), "")
    if fault:
        raise CommError(f"a parameter server's ranks cannot share memory: {fault}", everywhere=True)
    return found
