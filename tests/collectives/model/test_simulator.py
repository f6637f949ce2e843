"""The simulator finds what it is for: deadlocks, mismatched messages, reads before writes, overwritten sends."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send
from tests.collectives.model.simulator import Simulation, SimulationError


def simulation(*steps, **options) -> Simulation:
    """One rank for each list of steps, on 4 elements; rank r holds 10 r + 0 .. 3."""
    plans = [Plan(rank, len(steps), 4, tuple(plan)) for rank, plan in enumerate(steps)]
    return Simulation(plans, [10 * rank + np.arange(4) for rank in range(len(steps))], **options)


def test_sum_arrives():
    run = simulation([RecvReduce(1, 0, 4)], [Send(0, 0, 4)])
    run.run()
    assert run.buffers[0].tolist() == [10, 12, 14, 16]


def test_messages_of_a_pair_are_matched_in_order():
    run = simulation([Recv(1, 0, 1), Recv(1, 1, 2)], [Send(0, 3, 4), Send(0, 0, 1)])
    run.run(seed=1)
    assert run.buffers[0].tolist() == [13, 10, 2, 3]


def test_both_waiting_is_a_deadlock():
    with pytest.raises(SimulationError, match=r"deadlock: rank 0 at step 0 .*peer=1.*; rank 1 at step 0"):
        simulation([Recv(1, 0, 1), Send(1, 0, 1)], [Recv(0, 0, 1), Send(0, 0, 1)]).run()


def test_exchange_in_place_needs_buffering():
    """Each rank must have sent before it may receive into the same elements: only eager messages allow it."""
    plans = [Send(1, 0, 4), Recv(1, 0, 4)], [Send(0, 0, 4), Recv(0, 0, 4)]
    simulation(*plans, eager=True).run()
    with pytest.raises(SimulationError, match="deadlock"):
        simulation(*plans).run()


def test_sends_hold_up_receives_into_their_own_elements_only():
    run = simulation([Send(1, 0, 2), Recv(1, 2, 4)], [Send(0, 0, 2), Recv(0, 2, 4)])
    run.run()
    assert [buffer.tolist() for buffer in run.buffers] == [[0, 1, 10, 11], [10, 11, 0, 1]]
    run = simulation([Send(1, 2, 4), Recv(1, 0, 2)], [Send(0, 2, 4), Recv(0, 0, 2)])
    run.run()
    assert [buffer.tolist() for buffer in run.buffers] == [[12, 13, 2, 3], [2, 3, 12, 13]]


def test_exchange_with_sum_needs_no_buffering():
    run = simulation([Send(1, 0, 4), RecvReduce(1, 0, 4)], [Send(0, 0, 4), RecvReduce(0, 0, 4)])
    run.run(seed=2)
    assert run.buffers[0].tolist() == run.buffers[1].tolist() == [10, 12, 14, 16]


def test_an_executor_that_overwrites_what_it_sends_is_caught():
    """Rank 0 passes its values to rank 2 and then takes rank 1's, while rank 2 is late."""
    plans = [Send(2, 0, 4), Recv(1, 0, 4)], [Send(0, 0, 4), Send(2, 0, 1)], [Recv(1, 0, 1), Recv(0, 0, 4)]

    def outcomes(**options) -> set[tuple[int, ...]]:
        found = set()
        for seed in range(20):
            run = simulation(*plans, **options)
            run.run(seed)
            found.add(tuple(run.buffers[2].tolist()))
        return found

    assert outcomes() == {(0, 1, 2, 3)}
    assert (10, 11, 12, 13) in outcomes(wait_for_sends=False)


def test_unequal_lengths_are_an_error():
    with pytest.raises(SimulationError, match="rank 0, step 0: .* meets a message of 3 elements"):
        simulation([Recv(1, 0, 2)], [Send(0, 0, 3)]).run()


def test_a_message_nobody_takes_is_an_error():
    with pytest.raises(SimulationError, match="never received: from rank 1 to 0"):
        simulation([], [Send(0, 0, 3)]).run()


@pytest.mark.parametrize(("steps", "words"), [
    (([Recv(1, 0, 4)], [Send(0, 0, 4)]), "rank 1, step 0: .* reads elements not yet written"),
    (([Send(1, 0, 1)], [RecvReduce(0, 0, 1)]), "rank 1, step 0: .* adds to elements not yet written"),
])
def test_reading_before_writing_is_an_error(steps, words):
    defined = [np.ones(4, bool), np.zeros(4, bool)]
    with pytest.raises(SimulationError, match=words):
        simulation(*steps, defined=defined).run()


def test_what_was_received_may_be_sent_on():
    defined = [np.ones(4, bool), np.zeros(4, bool), np.zeros(4, bool)]
    run = simulation([Send(1, 0, 4)], [Recv(0, 0, 4), Send(2, 0, 4)], [Recv(1, 0, 4)], defined=defined)
    run.run(seed=0)
    assert run.buffers[2].tolist() == [0, 1, 2, 3]
