"""docs/collectives.md: its table has every algorithm there is, and the costs that are counted on the plans."""

from __future__ import annotations

import re
from math import log2
from pathlib import Path

import pytest

from scaffe.collectives.model.counter import measured_cost
from scaffe.collectives.planning import algorithm, planners, registry
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.pattern import parse
from scaffe.collectives.topology import Topology

PAGE = (Path(__file__).parents[2] / "docs/collectives.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.split("\n## Algorithms\n")[1].split("\n## ")[0].splitlines() if line.startswith("| `")]
PLANNED = [row for row in ROWS if row[3] != "–"]


def collectives(row):
    return registry.COLLECTIVES if row[1] == "all five" else row[1].split(", ")


def value(formula, n_ranks):
    """`2(P-1)/P` and `2 lg P` as numbers."""
    spelled = formula.replace("lg P", "L").replace(" ", "")
    spelled = re.sub(r"(?<=\d)(?=[L(])", "*", spelled)
    assert re.fullmatch(r"[\dPL+\-*/()]+", spelled)
    return eval(spelled, {"P": n_ranks, "L": log2(n_ranks)})


def test_every_name_is_there():
    found = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[0])}
    shapes = {names[0] for names in registry.names().values()}
    assert found >= shapes | {"B", "C", "M", *algorithm.SELECTIONS, *algorithm.LIBRARIES}
    for name in found - {"…"}:
        algorithm.parse(name)  # and nothing else
    assert all(f"`:{wire}`" in PAGE for wire in algorithm.WIRES)


def test_long_names_are_names():
    for row in PLANNED:
        short, long = re.fullmatch(r"`(\w)` (\w+)", row[0]).groups()
        assert parse(long) == parse(short)


def test_who_can_do_what():
    listed = {(collective, re.findall(r"`(\w+)`", row[0])[0]) for row in PLANNED for collective in collectives(row)}
    assert listed == {(collective, name) for collective in registry.COLLECTIVES
                      for name in planners.short_names(collective)}


@pytest.mark.parametrize("row", PLANNED, ids=lambda row: f"{row[0][1]}-{row[1]}")
def test_costs_are_those_of_the_plans(row):
    for collective in collectives(row):
        for n_ranks in (4, 8, 64):
            n_elems = 64 * n_ranks
            chunk_elems = n_elems // 2 if row[0].startswith("`T`") else n_elems
            call = Call(Topology.flat(n_ranks), n_elems, chunk_elems)
            cost = measured_cost(planners.plans(collective, parse(row[0][1]), call))
            stated = [value(formula, n_ranks) for formula in row[3:6]]
            assert [cost.rounds, cost.sent, cost.received] == pytest.approx(stated), (collective, n_ranks)
