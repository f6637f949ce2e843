"""Programs keep what plans promise: order, scratch slots, and no message touched while it is under way."""

import pytest

from scaffe.collectives.planning import planners
from scaffe.collectives.planning.algorithm import parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Kind, Plan, Recv, RecvReduce, Send, compile_plan
from scaffe.collectives.topology import Topology


def overlap(one, other):
    return one.start < other.stop and other.start < one.stop


def check(plan, ahead):
    """Walk through the program and look at what is under way at every instruction."""
    steps, program = plan.steps, compile_plan(plan, ahead)
    posted, sending, waiting, combined, n_posted_reduces = [], set(), [], 0, 0
    for line in program:
        step = steps[line.step]
        if line.kind is Kind.POST:
            posted.append(line.step)
            waiting.append(line.step)
            assert len(waiting) <= ahead
            if isinstance(step, Recv):
                assert not any(overlap(step, steps[number]) for number in sending)
            else:
                n_posted_reduces += 1
                assert n_posted_reduces - combined <= ahead
        elif line.kind is Kind.AWAIT:
            assert waiting.pop(0) == line.step
        elif line.kind is Kind.COMBINE:
            combined += 1
            assert not any(overlap(step, steps[number]) for number in sending)
            assert not any(overlap(step, steps[number]) for number in waiting if isinstance(steps[number], Recv))
        elif line.kind is Kind.SEND:
            assert not any(overlap(step, steps[number]) for number in waiting if isinstance(steps[number], Recv))
            sending.add(line.step)
        else:
            sending.remove(line.step)
    assert posted == [number for number, step in enumerate(steps) if not isinstance(step, Send)]
    assert not sending
    assert not waiting
    taken = [line.step for line in program if line.kind in (Kind.SEND, Kind.AWAIT)]
    assert taken == list(range(len(steps)))
    assert combined == sum(isinstance(step, RecvReduce) for step in steps)


CASES = [(collective, name) for collective in planners.COLLECTIVES
         for name in ("B", "C", "CB-3", "R", "H", "D", "P") if planners.can(collective, parse_pattern(name))]


@pytest.mark.parametrize("ahead", [1, 2, 8])
@pytest.mark.parametrize(("collective", "name"), CASES)
def test_programs_of_all_planners(collective, name, ahead):
    for n_ranks in (1, 2, 3, 5, 8, 13):
        call = Call(Topology.flat(n_ranks), 61, 5, root=n_ranks // 2)
        for rank in range(n_ranks):
            check(planners.plan(collective, parse_pattern(name), rank, call), ahead)


def plan_of(*steps):
    return Plan(0, 3, 10, steps)


def kinds(plan, ahead=4):
    return [(line.kind.name, line.step) for line in compile_plan(plan, ahead)]


def test_receives_are_posted_before_earlier_steps_run():
    plan = plan_of(RecvReduce(1, 0, 5), Send(2, 0, 5), RecvReduce(1, 5, 10), Send(2, 5, 10))
    assert kinds(plan)[:2] == [("POST", 0), ("POST", 2)]


def test_a_send_is_awaited_only_where_its_interval_is_written_again():
    plan = plan_of(Send(1, 0, 5), Send(1, 5, 10), RecvReduce(2, 0, 5))
    assert kinds(plan) == [("POST", 2), ("SEND", 0), ("SEND", 1), ("AWAIT", 2), ("SENT", 0), ("COMBINE", 2),
                           ("SENT", 1)]


def test_a_receive_over_a_send_waits_for_it():
    plan = plan_of(Send(1, 0, 5), Recv(2, 3, 4))
    assert kinds(plan) == [("SEND", 0), ("SENT", 0), ("POST", 1), ("AWAIT", 1)]


def test_a_receive_is_not_posted_before_what_it_overwrites_was_summed():
    plan = plan_of(RecvReduce(1, 0, 5), Recv(2, 4, 6))
    assert kinds(plan) == [("POST", 0), ("AWAIT", 0), ("COMBINE", 0), ("POST", 1), ("AWAIT", 1)]
