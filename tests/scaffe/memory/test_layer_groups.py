"""Blocks of memory are divided into arrays of whole pages, each of which knows whose bytes it has."""

import random

import pytest

from scaffe.mapped_memory import HUGE_BYTES, PAGE_BYTES
from scaffe.memory.problem.layer_groups import pages_of_blocks


@pytest.mark.parametrize("seed", range(40))
def test_every_whole_page_is_in_one_array_with_those_who_have_bytes_of_it(seed):
    rng = random.Random(seed)
    is_long = seed % 2
    longest = rng.randint(4, 9) * HUGE_BYTES if is_long else rng.randint(1, 40) * PAGE_BYTES
    edges = [64 * rng.randint(0, 1 << 20)]
    for n_bytes in [longest, *(64 * rng.randint(1, longest // 64) for _ in range(rng.randint(0, 5)))]:
        edges.append(edges[-1] + n_bytes)
    found = pages_of_blocks(edges)
    page = HUGE_BYTES if is_long else PAGE_BYTES
    begin, end = -(-edges[0] // PAGE_BYTES) * PAGE_BYTES, edges[-1] // PAGE_BYTES * PAGE_BYTES
    bounds = [found[0][0].start, *(where.stop for where, _ in found)]
    assert bounds == sorted({begin, end, *bounds}) and all(where.start == at for at, (where, _) in zip(
        bounds, found, strict=False))
    assert all(bound % page == 0 for bound in bounds[1:-1])
    for where, blocks in found:
        assert list(blocks) == [i for i in range(len(edges) - 1)
                                if edges[i] < where.stop and edges[i + 1] > where.start]
        assert len(blocks) == 1 or where.stop - where.start <= page
