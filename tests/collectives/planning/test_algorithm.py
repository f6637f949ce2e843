"""Algorithms as one value: what names parse to, and what is no algorithm."""

import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import Algorithm, parse
from scaffe.collectives.planning.pattern import parse as pattern


@pytest.mark.parametrize(("name", "right"), [
    ("auto", Algorithm(selection="auto")), ("own:bf16", Algorithm(selection="own", wire="bf16")),
    ("mpi", Algorithm(library="mpi")), ("MPI", Algorithm(library="mpi")), ("nccl", Algorithm(library="nccl")),
    ("M", Algorithm(is_shared=True)), ("M:fp16", Algorithm(is_shared=True, wire="fp16")),
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
