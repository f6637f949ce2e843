"""docs/collectives.md: its table has every algorithm there is, and the costs that are counted on the plans."""

from __future__ import annotations

import re
from math import log2
from pathlib import Path

import pytest

from scaffe.collectives.planning import algorithm, planners
from scaffe.collectives.planning.algorithm import parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.levels import InterNodePhase, Levels
from scaffe.collectives.topology import Topology
from tests.collectives.model.simulator import measured_cost

PAGE = (Path(__file__).parents[2] / "docs/collectives.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.split("\n## Algorithms\n")[1].split("\n## ")[0].splitlines() if line.startswith("| `")]
LEVELS = [[cell.strip() for cell in line.strip("|").split("|")]
          for line in PAGE.split("\n## Several ranks on each node\n")[1].split("\n## ")[0].splitlines()
          if line.startswith("| `")]
PLANNED = [row for row in ROWS if row[3] != "–"]


def collectives(row):
    return algorithm.COLLECTIVES if row[1] == "all five" else row[1].split(", ")


def value(formula, n_ranks, n_nodes=0):
    """`2(P-1)/P` and `2 lg P` as numbers; n nodes of g ranks."""
    spelled = formula.replace("lg P", "L").replace(" ", "")
    spelled = re.sub(r"(?<=\d)(?=[L(])", "*", spelled)
    assert re.fullmatch(r"[\dPLng+\-*/()]+", spelled)
    return eval(spelled, {"P": n_ranks, "L": log2(n_ranks), "n": n_nodes, "g": n_ranks / n_nodes if n_nodes else 0})


def test_every_name_is_there():
    found = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[0])}
    shapes = {names[0] for names in algorithm.shape_names().values()}
    assert found >= shapes | {"B", "C", "M", "SC", *algorithm.SELECTIONS, *algorithm.LIBRARIES}
    for name in found - {"…"}:
        algorithm.parse(name)  # and nothing else
    assert all(f"`:{wire}`" in PAGE for wire in algorithm.WIRES)


def test_long_names_are_names():
    for row in PLANNED:
        short, long = re.fullmatch(r"`(\w)` (\w+)", row[0]).groups()
        assert parse_pattern(long) == parse_pattern(short)


def test_who_can_do_what():
    listed = {(collective, re.findall(r"`(\w+)`", row[0])[0]) for row in PLANNED for collective in collectives(row)}
    assert listed == {(collective, name) for collective in algorithm.COLLECTIVES
                      for name in planners.short_names(collective)}


@pytest.mark.parametrize("row", PLANNED, ids=lambda row: f"{row[0][1]}-{row[1]}")
def test_costs_are_those_of_the_plans(row):
    for collective in collectives(row):
        for n_ranks in (4, 8, 64):
            n_elems = 64 * n_ranks
            chunk_elems = n_elems // 2 if row[0].startswith("`T`") else n_elems
            call = Call(Topology.flat(n_ranks), n_elems, chunk_elems)
            cost = measured_cost(planners.plans(collective, parse_pattern(row[0][1]), call))
            stated = [value(formula, n_ranks) for formula in row[3:6]]
            assert [cost.rounds, cost.sent, cost.received] == pytest.approx(stated), (collective, n_ranks)


@pytest.mark.parametrize("row", LEVELS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_costs_between_nodes_are_those_of_the_plans(row):
    name = algorithm.parse(row[0].strip("`"))
    for collective in row[1].split(", "):
        for n_nodes, n_each in ((4, 8), (20, 8), (3, 2)):
            topology = Topology.from_ranks_per_node(n_nodes * n_each, n_each)
            n_elems = 64 * n_nodes * n_each
            groups = {phase.group.ranks: phase.group for rank in range(topology.n_ranks)
                      for phase in Levels(collective, topology, n_elems).phases(rank, name.is_split)
                      if isinstance(phase, InterNodePhase)}
            assert len(groups) == (n_each if name.is_split else 1)
            for group in groups.values():
                cost = measured_cost([group.plan(collective, name.pattern, place, n_elems, n_elems)
                                      for place in range(n_nodes)])
                stated = [value(formula, topology.n_ranks, n_nodes) for formula in row[2:5]]
                assert [cost.rounds, cost.sent, cost.received] == pytest.approx(stated)
