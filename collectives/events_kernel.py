"""The event loop of `events`, compiled."""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def run(offsets, kinds, peers, n_bytes, matches, constants):
    """Finish time of every rank, in seconds. Arguments as in `events.finish_times`."""
    nodes, links, rates = constants
    n_ranks = len(nodes)
    next_step = offsets[:-1].copy()
    now = np.zeros(n_ranks)
    out_free = np.zeros(2 * n_ranks)
    in_free = np.zeros(2 * n_ranks)
    waiting = np.zeros(n_ranks, np.bool_)
    arrivals = np.full(len(kinds), -1.0)
    events = [(0.0, np.int64(rank)) for rank in range(n_ranks)]
    heapq.heapify(events)
    while len(events):
        _, rank = heapq.heappop(events)
        step = next_step[rank]
        if step == offsets[rank + 1]:
            continue
        if kinds[step] == 0:
            peer = peers[step]
            now[rank] += rates[0]
            arrivals[step] = _deliver(now[rank], rank, peer, n_bytes[step], nodes, links, out_free, in_free)
            if waiting[peer] and next_step[peer] == matches[step]:
                waiting[peer] = False
                heapq.heappush(events, (max(now[peer], arrivals[step]), np.int64(peer)))
        elif arrivals[matches[step]] < 0:
            waiting[rank] = True
            continue
        else:
            now[rank] = max(now[rank], arrivals[matches[step]]) + rates[0]
            if kinds[step] == 2:
                now[rank] += rates[1] + n_bytes[step] / rates[2]
        next_step[rank] += 1
        heapq.heappush(events, (now[rank], rank))
    return now


@njit(cache=True, nogil=True)
def _deliver(now, rank, peer, n_bytes, nodes, links, out_free, in_free):
    """When a message sent now has arrived; ports 0 .. P-1 are the ranks', P .. the nodes' network ports."""
    between_nodes = int(nodes[rank] != nodes[peer])
    out_port = len(nodes) + nodes[rank] if between_nodes else rank
    in_port = len(nodes) + nodes[peer] if between_nodes else peer
    duration = n_bytes / links[between_nodes, 1]
    leaves = max(now, out_free[out_port])
    out_free[out_port] = leaves + duration
    enters = max(leaves + links[between_nodes, 0], in_free[in_port])
    in_free[in_port] = enters + duration
    return enters + duration
