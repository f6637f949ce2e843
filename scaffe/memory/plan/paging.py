"""Which pages of a device's memory tensors lie in. An array's addresses are contiguous, its pages are anywhere, so
that tensors leave no gaps between each other.

A page may lie at several addresses at once. Each stay of a tensor in memory has addresses of its own, and pages that
nobody else has in these steps: pages are the colours of an interval graph, which takes as many as its fullest step.
What keeps its address from stay to stay, as parameters do, has the same pages in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scaffe.memory.plan.layout import Intervals, Lay, Layout, Stay, arrangement, in_one_piece, occupied
from scaffe.memory.plan.plan import Plan
from scaffe.memory.problem.iteration import Iteration


def paged(lengths: Sequence[int], spans: Sequence[Intervals]) -> tuple[list[tuple[int, ...]], int]:
    """Give each array pages that no other has in a step in which both are there: the lowest that are free, first to
    what has several spans, then to what comes first. With one span each, all arrays take the pages of the fullest step.
    Returns the pages of each array, in order of its bytes, and the number of pages. Arrays without spans get page 0
    again and again.

    Args:
        lengths: in pages.
        spans: for each array, the steps in which it is there, first and last inclusive.
    """
    there = [number for number, each in enumerate(spans) if each]
    taken = np.zeros((max((last + 1 for each in spans for _, last in each), default=0), 0), np.bool_)  # step, page
    found = [(0,) * length for length in lengths]
    for number in sorted(there, key=lambda i: (len(spans[i]) == 1, spans[i][0])):
        rows = np.concatenate([np.arange(first, last + 1) for first, last in spans[number]])
        free = np.flatnonzero(~taken[rows].any(axis=0))[:lengths[number]]
        more = np.arange(taken.shape[1], taken.shape[1] + lengths[number] - free.size)
        if more.size:
            taken, free = np.pad(taken, ((0, 0), (0, more.size))), np.concatenate([free, more])
        taken[np.ix_(rows, free)] = True
        found[number] = tuple(free.tolist())
    return found, taken.shape[1]


LEAST_PAGES, MOST_PAGES = 64, 1 << 16  # of all tensors: fewer are too long for them, and more take long to map


@dataclass(frozen=True)
class Paging:
    """Lays tensors out in pages, or in one piece where that takes less, as short ones may. See ``Lay``.

    Attributes:
        page_bytes: of a page.
        n_blobs: the first tensors, whose address may be another one in each stay.
    """

    page_bytes: int
    n_blobs: int

    def __call__(self, iteration: Iteration, plan: Plan, n_bytes: int) -> Layout:
        found = self.in_pages(iteration, plan)
        if found.n_bytes <= n_bytes:
            return found
        piece = arrangement(iteration, plan, len(iteration.tensors), n_bytes // self.page_bytes * self.page_bytes)
        whole = replace(piece, n_bytes=self.pages(piece.n_bytes) * self.page_bytes)
        return min(found, whole, key=lambda layout: layout.n_bytes)

    def in_pages(self, iteration: Iteration, plan: Plan) -> Layout:
        stays = [(number, spans) for number, each in enumerate(occupied(iteration, plan))
                 for spans in ([(span,) for span in each] if number < self.n_blobs and each else [tuple(each)])]
        lengths = [self.pages(iteration.tensors[number].n_bytes) for number, _ in stays]
        pages, n_pages = paged(lengths, [spans for _, spans in stays])
        return Layout(None, n_pages * self.page_bytes, 0, tuple(
            Stay(number, spans[0][0] if spans else 0, own) for (number, spans), own in zip(stays, pages, strict=True)))

    def pages(self, n_bytes: int) -> int:
        """How many pages hold so many bytes."""
        return -(-n_bytes // self.page_bytes)


def laid_out(iteration: Iteration, least_page_bytes: int, n_blobs: int) -> Lay:
    """How an iteration's tensors are laid out on a device.

    Args:
        least_page_bytes: the shortest page that the device has; 0 if it has none.
        n_blobs: see ``Paging``.
    """
    whole = sum(tensor.n_bytes for tensor in iteration.tensors)
    if not least_page_bytes or whole < LEAST_PAGES * least_page_bytes:
        return in_one_piece
    longer = -(-whole // (least_page_bytes * MOST_PAGES))
    return Paging(least_page_bytes * longer, n_blobs)
