"""Which pages tensors lie in: compared with a check of every page in every step."""

import random

import pytest

from scaffe.memory.plan.layout import in_one_piece, least_together, occupied
from scaffe.memory.plan.paging import LEAST_PAGES, MOST_PAGES, Paging, laid_out, paged
from scaffe.memory.plan.placements import PLACEMENTS
from scaffe.memory.plan.plan import MemoryTooSmallError
from scaffe.memory.problem.iteration import Bandwidth, Iteration, Tensor
from tests.scaffe.memory.test_plans import random_iteration, with_state

BANDWIDTH = Bandwidth(1.0, 2.0, True)
N_STEPS = 12


def drawn(seed, n_spans):
    """Lengths in pages, and spans: disjoint, ascending, at most so many of each array, none of some."""
    rng = random.Random(seed)
    spans = []
    for _ in range(rng.randint(1, 15)):
        edges = sorted(rng.sample(range(N_STEPS), 2 * rng.randint(1, n_spans)))
        spans.append(list(zip(edges[::2], edges[1::2], strict=True)) if rng.random() < 0.9 else [])
    return [rng.randint(0, 7) for _ in spans], spans


def there(spans, step):
    return any(first <= step <= last for first, last in spans)


def live_pages(lengths, spans):
    return max(sum(n for n, each in zip(lengths, spans, strict=True) if there(each, step)) for step in range(N_STEPS))


def check(lengths, spans, found, n_pages):
    assert [len(each) for each in found] == lengths
    for step in range(N_STEPS):
        pages = [page for each, own in zip(spans, found, strict=True) if there(each, step) for page in own]
        assert len(pages) == len(set(pages)), step
        assert all(0 <= page < n_pages for page in pages)


@pytest.mark.parametrize("seed", range(60))
def test_no_two_arrays_share_a_page_and_there_are_no_gaps(seed):
    lengths, spans = drawn(seed, 1)
    found, n_pages = paged(lengths, spans)
    check(lengths, spans, found, n_pages)
    assert n_pages == live_pages(lengths, spans)


@pytest.mark.parametrize("seed", range(60))
def test_what_keeps_its_pages_from_stay_to_stay_meets_nobody_either(seed):
    lengths, spans = drawn(seed, 4)
    found, n_pages = paged(lengths, spans)
    check(lengths, spans, found, n_pages)
    assert live_pages(lengths, spans) <= n_pages <= sum(lengths)


def test_arrays_that_are_never_there_and_none_at_all_take_no_page():
    assert paged([2, 1], [[], [(3, 3)]]) == ([(0, 0), (0,)], 1)
    assert paged([], []) == ([], 0)
    assert paged([3], [[]]) == ([(0, 0, 0)], 0)


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_in_pages_takes_the_bytes_of_its_fullest_step(seed):
    """In pages of one byte, where arrays whose address may change are all there are."""
    iteration = random_iteration(seed)
    plan = PLACEMENTS["move"](iteration, 2 * max(part.n_bytes for part in iteration.tensors) * 4, BANDWIDTH)
    layout = Paging(1, len(iteration.tensors)).in_pages(iteration, plan)
    spans, lengths = occupied(iteration, plan), [part.n_bytes for part in iteration.tensors]
    fullest = max(sum(n for n, each in zip(lengths, spans, strict=True) if there(each, step))
                  for step in range(len(iteration.seconds)))
    assert layout.n_bytes == fullest
    firsts = {number: [stay.first_step for stay in layout.stays if stay.tensor == number]
              for number in range(len(lengths))}
    assert firsts == {number: [first for first, _ in each] or [0] for number, each in enumerate(spans)}


@pytest.mark.parametrize("seed", range(40))
def test_state_keeps_its_address_and_a_plan_for_the_least_fits(seed):
    """In pages of several bytes, or in one piece if that is shorter."""
    blobs = random_iteration(seed)
    iteration = with_state(blobs, seed, seed % 3)
    lay = Paging(4, len(blobs.tensors))
    least = least_together(iteration, lay)
    assert least % 4 == 0
    assert least <= -(-least_together(iteration) // 4) * 4
    for limit in (least, 3 * least):
        try:
            plan = PLACEMENTS["auto"](iteration, limit, BANDWIDTH)
        except MemoryTooSmallError:
            continue
        layout = lay(iteration, plan, limit)
        counts = [sum(stay.tensor == number for stay in layout.stays) for number in range(len(iteration.tensors))]
        assert not layout.stays or set(counts[len(blobs.tensors):]) <= {1}
        assert not layout.stays or min(counts) == 1
        assert (layout.offsets is None) == bool(layout.stays)


def test_short_tensors_lie_in_one_piece_and_many_bytes_in_longer_pages():
    def of(n_bytes):
        return Iteration((Tensor("a", n_bytes, (0,), (1,)),), (1.0, 1.0))

    assert laid_out(of(LEAST_PAGES * 8 - 1), 8, 1) is in_one_piece
    assert laid_out(of(10**9), 0, 1) is in_one_piece
    assert laid_out(of(LEAST_PAGES * 8), 8, 1) == Paging(8, 1)
    assert laid_out(of(MOST_PAGES * 8), 8, 1) == Paging(8, 1)
    assert laid_out(of(MOST_PAGES * 8 + 1), 8, 1) == Paging(16, 1)
    assert laid_out(of(MOST_PAGES * 8 * 5), 8, 1) == Paging(40, 1)
