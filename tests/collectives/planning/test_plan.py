"""Plans refuse steps that cannot be, and chunks cover an interval once."""

from __future__ import annotations

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send, chunks
from tests.collectives.model.simulator import validate


@pytest.mark.parametrize("step", [Send(1, 0, 1), Send(3, 0, 1), Recv(-1, 0, 1), Recv(0, 2, 2), Send(0, -1, 2),
                                  RecvReduce(0, 5, 11)])
def test_bad_steps_are_named(step):
    with pytest.raises(CommError, match=r"plan of rank 1, step 1: \w+\(peer="):
        validate(Plan(1, 3, 10, (Send(0, 0, 10), step)))


def test_a_rank_beyond_the_ranks_is_refused():
    with pytest.raises(CommError, match="rank 3 of 3 ranks"):
        validate(Plan(3, 3, 10, ()))


def test_scratch_holds_the_longest_message_to_be_added():
    assert Plan(0, 2, 10, (RecvReduce(1, 0, 3), RecvReduce(1, 3, 7), Recv(1, 0, 10))).scratch_elems == 4
    assert Plan(0, 2, 10, (Send(1, 0, 3),)).scratch_elems == 0


def test_a_plan_is_its_steps():
    plan = Plan(0, 2, 10, (Send(1, 0, 3), Recv(1, 0, 3)))
    assert len(plan) == 2
    assert list(plan) == [Send(1, 0, 3), Recv(1, 0, 3)]
    assert Send(1, 0, 3) != Recv(1, 0, 3)


@pytest.mark.parametrize(("start", "stop", "chunk_elems", "expected"), [
    (0, 0, 4, []), (3, 4, 4, [(3, 4)]), (0, 8, 4, [(0, 4), (4, 8)]), (2, 11, 4, [(2, 6), (6, 10), (10, 11)]),
])
def test_chunks_cover_an_interval_once(start, stop, chunk_elems, expected):
    assert list(chunks(start, stop, chunk_elems)) == expected


def test_a_chunk_has_elements():
    with pytest.raises(CommError, match="at least 1 element, not 0"):
        list(chunks(0, 4, 0))
