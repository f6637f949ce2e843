"""A rank that is a server alone: its shard works in a thread; here it waits for what worker 0 asks of all ranks."""

from __future__ import annotations

import math
import signal
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.training.early_signals import NUMBERS
from scaffe.training.histories import gather_parts
from scaffe.training.served.layout import Layout
from scaffe.training.served.options import Consistency
from scaffe.training.served.shard_rule import ShardRule
from scaffe.training.served.tables import ROOT, Tables
from scaffe.training.update_rules import UpdateRule, update_rules

HISTORIES, STEPS, FINISH = range(3)
TAG = 2


def serve(world: Communicator, param: Any, how: Consistency, n_workers: int) -> int:
    """Hold a shard until the workers end. Signals are for the workers.

    Args:
        world: all ranks.
        param: the SolverParameter message.
        how: the server's consistency.
        n_workers: how many workers there are.

    Returns:
        the exit code.
    """
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    layout = world.bcast_object(None, ROOT)
    rule = update_rules.get(param.type or "SGD")(param)  # which the workers know by now
    tables = make_tables(world, rule, param, how, n_workers, layout)
    control = world.split(0) or world
    tables.start()
    command = np.empty(1, np.int64)
    while True:
        control.messages.recv(command, ROOT, TAG, timeout=math.inf)
        if command[0] == FINISH:
            tables.close()
            return 0
        wanted = range(rule.n_histories) if command[0] == HISTORIES else [rule.n_histories]
        gather_parts([tables.histories(i) for i in wanted], 0, np.dtype(np.float32), world, ROOT)


def make_tables(world: Communicator, rule: UpdateRule, param: Any, how: Consistency, n_workers: int,
                layout: Layout, memory: str = "host") -> Tables:
    """The tables of a run, on a worker or a server. Called by all ranks.

    Args:
        world: all ranks.
        rule: the solver's update rule.
        param: the SolverParameter message.
        how: the server's consistency.
        n_workers: how many workers there are.
        layout: the tables.
        memory: where a worker's net has its parameters, "host" or "device".
    """
    scale = 1 / how.n_summed(n_workers) / (param.iter_size if how.decays else 1)
    return Tables(world, how.slack, how.n_servers, layout,
                  lambda place: ShardRule(rule, param, place.segments, scale, how.decays), memory)
