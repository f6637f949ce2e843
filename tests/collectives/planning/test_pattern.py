"""Names of algorithms."""

from __future__ import annotations

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import BY_NODE, parse_pattern


@pytest.mark.parametrize(("name", "levels", "group_ranks"), [
    ("B", "B", ()), ("C", "C", ()), ("CB-8", "CB", (8,)), ("cc-16", "CC", (16,)), ("CCB-8-4", "CCB", (8, 4)),
    ("BCBC-2-3-4", "BCBC", (2, 3, 4)), ("CB-node", "CB", (BY_NODE,)), ("CCB-2-NODE", "CCB", (2, BY_NODE)),
    ("chain", "C", ()), ("Binomial", "B", ()), ("CB-08", "CB", (8,)),
])
def test_trees(name, levels, group_ranks):
    pattern = parse_pattern(name)
    assert (pattern.shape, pattern.levels, pattern.group_ranks) == ("tree", levels, group_ranks)
    assert parse_pattern(pattern.name) == pattern


@pytest.mark.parametrize(("name", "short", "shape"), [
    ("R", "R", "ring"), ("ring", "R", "ring"), ("H", "H", "halving"), ("Rabenseifner", "H", "halving"),
    ("D", "D", "doubling"), ("bruck", "D", "doubling"), ("p", "P", "pairwise"), ("TwoTree", "T", "twotree"),
])
def test_others(name, short, shape):
    assert (parse_pattern(name).name, parse_pattern(name).shape) == (short, shape)


@pytest.mark.parametrize("name", ["X", "", "CB 8", "8-CB", "CR-8", "CB-x", "C--8"])
def test_unknown_names_list_the_known(name):
    with pytest.raises(CommError, match="known are B .* CB-8.* R .*mpi"):
        parse_pattern(name)


@pytest.mark.parametrize(("name", "words"), [
    ("CB", "2 levels need 1 group sizes, got 0"), ("C-8", "1 levels need 0 group sizes, got 1"),
    ("CCB-8", "3 levels need 2 group sizes, got 1"), ("CB-1", "at least 2 ranks"), ("CB-0", "at least 2 ranks"),
])
def test_sizes_that_do_not_fit(name, words):
    with pytest.raises(CommError, match=words):
        parse_pattern(name)
