"""One pass over shared memory: all ranks arrive, take chunks until none is left, and leave together.

A channel is a row of words, one cache line each, in memory that all ranks of the node have mapped:

    ARRIVED    how many ranks have arrived
    GO         the pass that has begun
    TAKEN      how many chunks have been taken
    FINISHED   how many chunks are finished
    DONE       the last pass that is complete
    MISMATCH   the last pass on which ranks disagreed
    PEERS ...  one line per rank: its last pass, and the 64-bit signature of its call

Passes are counted modulo 2**32. The last rank to arrive begins the pass, so no rank is still in the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from scaffe.collectives.shared.atomics import add_word, as_pointer, load_word, reached, store_word, wait_for, wake
from scaffe.collectives.shared.kernels import combine_ranks, copy_range
from scaffe.jit import compiled

LINE_BYTES = 64
ARRIVED, GO, TAKEN, FINISHED, DONE, MISMATCH, PEERS = (LINE_BYTES * line for line in range(7))
COMPLETE, TIMED_OUT, MISMATCHED = 0, 1, 2
WAKE_ALL_CHUNKS = 2  # the last rank to arrive finishes a shorter pass before another could wake up


def channel_bytes(n_ranks: int) -> int:
    """Returns a channel's length in bytes."""
    return PEERS + LINE_BYTES * n_ranks


@compiled
def _signature(channel: int, rank: int) -> Any:
    address = channel + PEERS + LINE_BYTES * rank + 8
    return carray(as_pointer(address, np.empty(0, np.int64)), 1)


@compiled
def _begin(channel: int, n_ranks: int, epoch: Any, n_chunks: int) -> None:
    """The last rank to arrive opens the pass, or cancels it when signatures differ."""
    store_word(channel + ARRIVED, 0)
    store_word(channel + TAKEN, 0)
    store_word(channel + FINISHED, 0)
    wanted = _signature(channel, 0)[0]
    for rank in range(1, n_ranks):
        if _signature(channel, rank)[0] != wanted:
            store_word(channel + MISMATCH, epoch)
    if n_chunks == 0 or load_word(channel + MISMATCH) == epoch:
        store_word(channel + GO, epoch)
        store_word(channel + DONE, epoch)
        wake(channel + DONE)
    else:
        store_word(channel + GO, epoch)
    wake(channel + GO)


@compiled
def _work(channel: int, epoch: Any, chunks: np.ndarray, sources: np.ndarray, targets: np.ndarray,
          addresses: np.ndarray, block: np.ndarray, op: int) -> None:
    """Takes chunks until none is left; whoever finishes the last one marks the pass complete."""
    n_chunks = len(chunks)
    while True:
        index: int = add_word(channel + TAKEN, 1)
        if index >= n_chunks:
            return
        start, end, segment = chunks[index]
        source_ranks = sources[segment, 1 : 1 + sources[segment, 0]]
        target_ranks = targets[segment, 1 : 1 + targets[segment, 0]]
        if source_ranks.size == 1:
            copy_range(addresses, source_ranks[0], target_ranks, start * block.itemsize, end * block.itemsize)
        else:
            combine_ranks(addresses, source_ranks, target_ranks, start, end, block, op)
        if add_word(channel + FINISHED, 1) + 1 == n_chunks:
            store_word(channel + DONE, epoch)
            wake(channel + DONE)


def missing(channel: int, n_ranks: int, epoch: np.uint32) -> list[int]:
    """Lists the ranks that a pass waits for. Returns ranks that have not arrived; all ranks where every one has, since
    any may be at work on a chunk."""
    late = [rank for rank in range(n_ranks) if not reached(channel + PEERS + LINE_BYTES * rank, epoch)]
    return late or list(range(n_ranks))


@compiled
def run_pass(channel: int, rank: int, n_ranks: int, epoch: Any, arrived: bool, signature: int, chunks: np.ndarray,
             sources: np.ndarray, targets: np.ndarray, addresses: np.ndarray, block: np.ndarray, op: int, n_polls: int,
             timespec: np.ndarray) -> int:
    """Runs a pass on this rank.

    Args:
        epoch: uint32, the pass.
        arrived: False at first, True when called again after TIMED_OUT.
        signature: int64, of the call; must be the same on all ranks.
        chunks: int64, rows (first element, one past the last, segment).
        sources: int64, per segment a count and the ranks that are read.
        targets: int64, per segment a count and the ranks that are written.
        addresses: int64, shape (n_ranks,): the first byte of each rank's buffer.
        op: 0 sum, 1 max, 2 min, 3 prod.

    Returns:
        COMPLETE, TIMED_OUT or MISMATCHED.
    """
    if not arrived:
        _signature(channel, rank)[0] = signature
        store_word(channel + PEERS + LINE_BYTES * rank, epoch)
        if add_word(channel + ARRIVED, 1) + 1 == n_ranks:
            _begin(channel, n_ranks, epoch, len(chunks))
    if len(chunks) >= WAKE_ALL_CHUNKS or reached(channel + GO, epoch):
        if not wait_for(channel + GO, epoch, n_polls, timespec):
            return TIMED_OUT
        if load_word(channel + MISMATCH) != epoch:
            _work(channel, epoch, chunks, sources, targets, addresses, block, op)
    if not wait_for(channel + DONE, epoch, n_polls, timespec):
        return TIMED_OUT
    return MISMATCHED if load_word(channel + MISMATCH) == epoch else COMPLETE
