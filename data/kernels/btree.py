"""Reads LMDB's B+tree in the bytes of data.mdb (layout: lmdb.h and mdb.c of OpenLDAP's LMDB 0.9, format 1).

A page starts with 16 bytes: page number, padding, flags (at byte 10), end of the pointer table (at byte 12). A node is
8 bytes (two halves of a size or page number, flags, key length), the key, then the value or the number of the overflow
page that holds it. Offsets are checked before they are followed, so a damaged file gives an error code, never a
segmentation fault.
"""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled

HEADER, NODE = 16, 8
BRANCH, LEAF, OVERFLOW = 1, 2, 4  # page flags
BIG, SUB, DUP = 1, 2, 4  # node flags
TRUNCATED, CORRUPT, UNSUPPORTED = -1, -2, -3  # error codes
MAX_DEPTH = 32


@compiled(inline="always")
def u16(file: np.ndarray, at: int) -> np.int64:
    """The little-endian 16-bit number at an offset."""
    return np.int64(file[at]) | np.int64(file[at + 1]) << 8


@compiled(inline="always")
def u32(file: np.ndarray, at: int) -> np.int64:
    """The little-endian 32-bit number at an offset."""
    return np.int64(u16(file, at) | u16(file, at + 2) << 16)


@compiled
def walk(file: np.ndarray, page_bytes: int, root: int, nodes: np.ndarray) -> int:
    """Find every leaf node, in key order.

    A page that is met twice is an error: in a damaged file, pages that point to each other would take for ever.

    Args:
        file: uint8, 1-D, the whole file.
        page_bytes: length of a page.
        root: page number of the tree's root.
        nodes: int64 (n_records,), receives each node's offset in the file.

    Returns:
        The number of records found, or an error code (below zero).
    """
    pages, places = np.zeros(MAX_DEPTH, np.int64), np.zeros(MAX_DEPTH, np.int64)
    visited = np.zeros(file.size // page_bytes, np.bool_)
    depth, n_records = 0, 0
    pages[0] = root
    while depth >= 0:
        if pages[depth] < 0 or pages[depth] >= visited.size:
            return TRUNCATED
        page = pages[depth] * page_bytes
        if places[depth] == 0:
            if visited[pages[depth]]:
                return CORRUPT  # a page has one parent
            visited[pages[depth]] = True
        flags, lower = u16(file, page + 10), u16(file, page + 12)
        if lower < HEADER or lower > page_bytes or not flags & (BRANCH | LEAF) or flags & ~(BRANCH | LEAF | 16):
            return CORRUPT
        n_nodes = (lower - HEADER) // 2
        if places[depth] == n_nodes:
            depth -= 1
            continue
        if flags & LEAF:
            for i in range(n_nodes):
                node = u16(file, page + HEADER + 2 * i)
                if node < lower or node + NODE > page_bytes or n_records == nodes.size:
                    return CORRUPT
                nodes[n_records] = page + node
                n_records += 1
            depth -= 1
            continue
        node = u16(file, page + HEADER + 2 * places[depth])
        places[depth] += 1
        if node < lower or node + NODE > page_bytes or depth + 1 == MAX_DEPTH:
            return CORRUPT
        depth += 1
        pages[depth], places[depth] = u32(file, page + node) | u16(file, page + node + 4) << 32, 0
    return n_records


@compiled
def value_span(file: np.ndarray, page_bytes: int, node: int) -> tuple[int, int]:
    """Offset and length of the value of the leaf node at offset ``node``; on failure the length is an error code."""
    flags, start = u16(file, node + 4), node + NODE + u16(file, node + 6)
    n_bytes = u32(file, node)
    if flags & (SUB | DUP):
        return start, UNSUPPORTED
    if flags & BIG:
        if start + 8 > file.size:
            return start, CORRUPT
        page = (u32(file, start) | u32(file, start + 4) << 32) * page_bytes
        if page < 0 or page > file.size - HEADER - n_bytes:
            return start, TRUNCATED
        if u16(file, page + 10) & OVERFLOW == 0:
            return start, CORRUPT
        return page + HEADER, n_bytes
    if start + n_bytes > file.size:
        return start, TRUNCATED
    return start, n_bytes


@compiled
def value_spans(file: np.ndarray, page_bytes: int, nodes: np.ndarray, spans: np.ndarray) -> int:
    """Find the values of leaf nodes.

    Args:
        file: uint8, 1-D, the whole file.
        page_bytes: length of a page.
        nodes: int64 (n,), offsets of the nodes.
        spans: int64 (n, 2), receives start and length of each value.

    Returns:
        Index of the first node whose value cannot be read (its length in ``spans`` is then an error code), or -1.
    """
    for i in range(nodes.size):
        spans[i, 0], spans[i, 1] = value_span(file, page_bytes, nodes[i])
        if spans[i, 1] < 0:
            return i
    return -1
