"""Counts what plans do: messages, elements and rounds, to compare with what the algorithms claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.collectives.model.events import compile_plans, finish_times
from scaffe.collectives.model.machine import Machine
from scaffe.collectives.planning.cost import Cost
from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send
from scaffe.collectives.topology import Topology


@dataclass(frozen=True, slots=True)
class Count:
    """What one rank's plan does: messages and elements sent and received, and elements added."""

    messages_sent: int
    messages_received: int
    elems_sent: int
    elems_received: int
    elems_reduced: int


def count(plan: Plan) -> Count:
    """Counts one rank's messages and elements."""
    sent = [step.stop - step.start for step in plan if isinstance(step, Send)]
    copied = [step.stop - step.start for step in plan if isinstance(step, Recv)]
    reduced = [step.stop - step.start for step in plan if isinstance(step, RecvReduce)]
    return Count(len(sent), len(copied) + len(reduced), sum(sent), sum(copied) + sum(reduced), sum(reduced))


def rounds(plans: Sequence[Plan]) -> int:
    """Returns the length of the longest chain of messages that wait for one another, over all ranks' plans."""
    # the finish time on a machine where a message takes time 1 and nothing else takes any
    unit = Machine(1, float("inf"), 1, float("inf"), 0, 0, float("inf"))
    return round(float(finish_times(compile_plans(plans), Topology.flat(len(plans)), 1, unit).max()))


def measured_cost(plans: Sequence[Plan]) -> Cost:
    """The cost of all ranks' `plans`, counted."""
    counts = [count(plan) for plan in plans]
    n_elems = plans[0].n_elems
    return Cost(rounds(plans), max(c.elems_sent for c in counts) / n_elems,
                max(c.elems_received for c in counts) / n_elems)
