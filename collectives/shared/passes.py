"""One pass over shared memory: all ranks arrive, take pieces until none is left, and leave together.

The words of a channel, one cache line each, in memory that all ranks of the node have mapped:
ARRIVED how many ranks have come · GO the pass that has begun · TAKEN pieces taken · FINISHED pieces finished ·
DONE the last pass that is complete · from PEERS on, a line for each rank: its last pass and its 64-bit signature.
Passes are counted modulo 2**32. The last rank to come starts the pass, so nobody is still in the one before.
"""

import numpy as np
from numba import carray

from scaffe.collectives.shared.atomics import add_word, as_pointer, load_word, store_word
from scaffe.collectives.shared.futex import reached, wait_for, wake
from scaffe.collectives.shared.kernels import combine_ranks, copy_range
from scaffe.jit import compiled

LINE_BYTES = 64
ARRIVED, GO, TAKEN, FINISHED, DONE, MISMATCH, PEERS = (LINE_BYTES * line for line in range(7))
COMPLETE, TIMED_OUT, MISMATCHED = 0, 1, 2
WAKE_ALL_PIECES = 2  # a pass of fewer pieces is finished by the last rank to come before another could wake up


def channel_bytes(n_ranks: int) -> int:
    """Length of a channel's memory."""
    return PEERS + LINE_BYTES * n_ranks


@compiled
def _signature(channel, rank):
    address = channel + PEERS + LINE_BYTES * rank + 8
    return carray(as_pointer(address, np.empty(0, np.int64)), 1)


@compiled
def _begin(channel, n_ranks, epoch, n_pieces):
    """The last rank to come opens the pass, or calls it off when the ranks want different things."""
    store_word(channel + ARRIVED, 0)
    store_word(channel + TAKEN, 0)
    store_word(channel + FINISHED, 0)
    wanted = _signature(channel, 0)[0]
    for rank in range(1, n_ranks):
        if _signature(channel, rank)[0] != wanted:
            store_word(channel + MISMATCH, epoch)
    if n_pieces == 0 or load_word(channel + MISMATCH) == epoch:
        store_word(channel + GO, epoch)
        store_word(channel + DONE, epoch)
        wake(channel + DONE)
    else:
        store_word(channel + GO, epoch)
    wake(channel + GO)


@compiled
def _work(channel, epoch, pieces, sources, targets, addresses, block, op):
    """Take pieces until none is left; whoever finishes the last one declares the pass complete."""
    n_pieces = len(pieces)
    while True:
        index = add_word(channel + TAKEN, 1)
        if index >= n_pieces:
            return
        start, end, segment = pieces[index]
        source_ranks = sources[segment, 1 : 1 + sources[segment, 0]]
        target_ranks = targets[segment, 1 : 1 + targets[segment, 0]]
        if source_ranks.size == 1:
            copy_range(addresses, source_ranks[0], target_ranks, start * block.itemsize, end * block.itemsize)
        else:
            combine_ranks(addresses, source_ranks, target_ranks, start, end, block, op)
        if add_word(channel + FINISHED, 1) + 1 == n_pieces:
            store_word(channel + DONE, epoch)
            wake(channel + DONE)


def missing(channel: int, n_ranks: int, epoch: np.uint32) -> list[int]:
    """The ranks that have not come to pass `epoch`; where all have, those that could be at work on it."""
    late = [rank for rank in range(n_ranks) if not reached(channel + PEERS + LINE_BYTES * rank, epoch)]
    return late or list(range(n_ranks))


@compiled
def run_pass(channel, rank, n_ranks, epoch, arrived, signature, pieces, sources, targets, addresses, block, op,
             n_spins, timespec):
    """Run pass `epoch` on this rank: COMPLETE, TIMED_OUT (call again with `arrived` True) or MISMATCHED.

    pieces: rows (start, end, segment) in elements; sources, targets: per segment a count and ranks;
    addresses: int64, the buffer's first byte on each rank; block: scratch of the buffers' dtype.
    """
    if not arrived:
        _signature(channel, rank)[0] = signature
        store_word(channel + PEERS + LINE_BYTES * rank, epoch)
        if add_word(channel + ARRIVED, 1) + 1 == n_ranks:
            _begin(channel, n_ranks, epoch, len(pieces))
    if len(pieces) >= WAKE_ALL_PIECES or reached(channel + GO, epoch):
        if not wait_for(channel + GO, epoch, n_spins, timespec):
            return TIMED_OUT
        if load_word(channel + MISMATCH) != epoch:
            _work(channel, epoch, pieces, sources, targets, addresses, block, op)
    if not wait_for(channel + DONE, epoch, n_spins, timespec):
        return TIMED_OUT
    return MISMATCHED if load_word(channel + MISMATCH) == epoch else COMPLETE
