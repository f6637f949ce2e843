"""Algorithms as one value: what names parse to, and what is no algorithm."""

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import Algorithm, is_divisible, parse
from scaffe.collectives.planning.algorithm import parse_pattern as pattern
from scaffe.collectives.planning.planners import require
from scaffe.collectives.topology import Topology


@pytest.mark.parametrize(("name", "right"), [
    ("auto", Algorithm(selection="auto")), ("own:bf16", Algorithm(selection="own", wire="bf16")),
    ("mpi", Algorithm(library="mpi")), ("MPI", Algorithm(library="mpi")), ("nccl", Algorithm(library="nccl")),
    ("M", Algorithm(is_shared=True)), ("M:fp16", Algorithm(is_shared=True, wire="fp16")),
    ("M2", Algorithm(is_shared=True, is_doubled=True)),
    ("C", Algorithm(pattern=pattern("C"))), ("MCB-4:bf16", Algorithm("", "", True, pattern("CB-4"), "bf16")),
    ("SC", Algorithm(is_shared=True, is_split=True, pattern=pattern("C"))),
    ("SCB-4:bf16", Algorithm("", "", True, pattern("CB-4"), "bf16", True)),
    ("ring", Algorithm(pattern=pattern("R"))), ("MR", Algorithm(is_shared=True, pattern=pattern("R"))),
])
def test_a_name_is_parsed_once(name, right):
    assert parse(name) == right
    assert parse(parse(name)) is parse(name)
    assert parse(str(right)) == right


@pytest.mark.parametrize(("name", "words"), [
    ("X", "no algorithm is called 'X': known are B"), ("MX", "'X'"), ("S", "called ''"), ("SM", "'M'"),
    ("m", "'m'"), ("C:fp8", "a wire is fp16 or bf16"),
    ("C:", "not ''"), (None, "must be a name such as auto, mpi or CB-8, not None"), (3, "not 3"), (["C"], "not .'C'.")])
def test_what_is_no_algorithm(name, words):
    with pytest.raises(CommError, match=words):
        parse(name)


@pytest.mark.parametrize(("collective", "nodes", "words"), [
    ("bcast", [0, 0], "'M2' cannot do bcast: reduce and reduce_scatter can"),
    ("reduce", [0, 1], "M2 needs all ranks on one node, these are on 2")])
def test_what_results_for_two_ranks_cannot_be(collective, nodes, words):
    with pytest.raises(CommError, match=words):
        require(collective, parse("M2"), Topology(nodes))


@pytest.mark.parametrize(("name", "n_ranks", "expected"), [
    ("C", 5, True), ("CB-8", 5, True), ("halving", 5, True), ("M", 5, True), ("C:fp16", 2, True),
    ("auto", 2, True), ("mpi", 2, True), ("auto", 3, False), ("mpi", 3, False), ("auto:bf16", 2, False),
    ("twotree", 5, False), ("SC", 5, False), ("R", 5, False)])  # a ring has no reduce
def test_sums_that_may_be_divided(name, n_ranks, expected):
    assert is_divisible(name, n_ranks) is expected
