"""What the executor actually runs, under messages that are as early, as late and as random as MPI allows."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.collectives.planning.algorithm import parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send
from scaffe.collectives.planning.planners import plans
from tests.collectives.cases import EVERY_NAME, defined_at_start, expected, rank_counts, topologies, unique_payload
from tests.collectives.model.rehearsal import Rehearsal, Timing
from tests.collectives.model.simulator import SimulationError

TIMINGS = tuple(Timing)


def payloads(collective: str, call: Call, n_calls: int) -> list[np.ndarray]:
    """Every call's inputs, other ones each time; what holds no value at the start is garbage."""
    defined = np.array(defined_at_start(collective, call)).reshape(call.n_ranks, call.n_elems)
    garbage = np.uint64(0xDEADBEEFDEADBEEF)
    values = [unique_payload(call.n_ranks, call.n_elems) + np.uint64(number * 977) for number in range(n_calls)]
    return [np.where(defined, rows, garbage) for rows in values]


def rehearse(collective: str, name: str, call: Call, timing: Timing, seed: int) -> None:
    """Two calls in a row on the same executors, every element compared after each."""
    inputs = payloads(collective, call, 2)
    buffers = [np.zeros(call.n_elems, np.uint64) for _ in range(call.n_ranks)]
    right = [{rank: (where, values) for rank, where, values in expected(collective, rows, call)} for rows in inputs]
    n_ended = []

    def fill(number: int, rank: int) -> None:
        buffers[rank][:] = inputs[number][rank]

    def compare(number: int, rank: int) -> None:
        n_ended.append(rank)
        if rank in right[number]:
            where, values = right[number][rank]
            np.testing.assert_array_equal(buffers[rank][where], values,
                                          f"{collective} by {name}, call {number}, rank {rank}, {timing.name}, {call}")

    begin = [lambda rank, number=number: fill(number, rank) for number in range(2)]
    Rehearsal(plans(collective, parse_pattern(name), call), buffers, timing, seed).run(begin, compare)
    assert len(n_ended) == 2 * call.n_ranks


@rank_counts
@pytest.mark.parametrize(("collective", "name"), EVERY_NAME)
def test_right_on_any_rank_count(collective, name, rank_counts):
    """1 to 33 ranks, flat and given nodes, ragged lengths, chunks down to one element, any root."""
    for n_ranks in rank_counts:
        topology = topologies(n_ranks)[n_ranks // 3 % 3]
        root = 7 * n_ranks // 3 % n_ranks if collective in ("reduce", "bcast") else 0
        call = Call(topology, 37 if n_ranks % 2 else n_ranks + 1, (1 if n_ranks < 13 else 6) + n_ranks % 5, root)
        rehearse(collective, name, call, TIMINGS[n_ranks % 3], seed=n_ranks)


@pytest.mark.parametrize(("collective", "name"), EVERY_NAME)
@pytest.mark.parametrize("timing", TIMINGS)
def test_right_at_any_timing(collective, name, timing):
    """Few ranks, all timings, more chunks than scratch slots; lengths of zero and one."""
    for n_ranks in (2, 3, 5, 8):
        for seed, (n_elems, chunk_elems) in enumerate(((0, 1), (1, 1), (61, 2), (64, 36))):
            topology = topologies(n_ranks)[seed % 3]
            root = n_ranks - 1 if collective in ("reduce", "bcast") else 0
            rehearse(collective, name, Call(topology, n_elems, chunk_elems, root), timing, seed)


def rehearsal(*steps, timing: Timing, seed: int = 0) -> tuple[Rehearsal, list[np.ndarray]]:
    made = [Plan(rank, len(steps), 4, tuple(plan)) for rank, plan in enumerate(steps)]
    buffers = [10 * rank + np.arange(4) for rank in range(len(steps))]
    return Rehearsal(made, buffers, timing, seed), buffers


def run_once(made: Rehearsal) -> None:
    made.run([lambda rank: None], lambda number, rank: None)


PASS_ON = ([Send(2, 0, 4), Recv(1, 0, 4)], [Send(0, 0, 4)], [Recv(0, 0, 4)])


def test_late_messages_betray_an_executor_that_does_not_wait_for_its_sends():
    made, buffers = rehearsal(*PASS_ON, timing=Timing.LATE)
    run_once(made)
    assert buffers[2].tolist() == [0, 1, 2, 3]
    made, buffers = rehearsal(*PASS_ON, timing=Timing.LATE)
    send, sent, *rest = made._calls[0]
    made._calls[0] = [send, *rest, sent]
    run_once(made)
    assert buffers[2].tolist() != [0, 1, 2, 3]


def test_a_scratch_slot_taken_twice_is_seen():
    steps = ([RecvReduce(1, 0, 2), RecvReduce(1, 2, 4)], [Send(0, 0, 2), Send(0, 2, 4)])
    made, buffers = rehearsal(*steps, timing=Timing.LATE)
    run_once(made)
    assert buffers[0].tolist() == [10, 12, 14, 16]
    made, buffers = rehearsal(*steps, timing=Timing.EARLY)
    post, post_next, take, combine, *rest = made._calls[0]
    post_next.__self__.part = post.__self__.part
    run_once(made)
    assert buffers[0].tolist() != [10, 12, 14, 16]


@pytest.mark.parametrize(("steps", "words"), [
    (([Recv(1, 0, 1), Send(1, 0, 1)], [Recv(0, 0, 1), Send(0, 0, 1)]), "deadlock: 2 of 2 ranks wait"),
    (([Recv(1, 0, 2)], [Send(0, 0, 3)]), "rank 0 expects 2 elements, rank 1 sends 3"),
])
def test_plans_that_do_not_fit(steps, words):
    for timing in TIMINGS:
        with pytest.raises(SimulationError, match=words):
            run_once(rehearsal(*steps, timing=timing)[0])


def test_a_message_nobody_takes_is_an_error():
    with pytest.raises(SimulationError, match="messages are left"):
        run_once(rehearsal([], [Send(0, 0, 3)], timing=Timing.EARLY)[0])
