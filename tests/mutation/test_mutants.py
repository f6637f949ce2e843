"""The list of mutants keeps up with the code; running them is `make test-mutants`."""

from tests.mutation.mutants import outdated


def test_every_mutant_takes_out_what_is_there() -> None:
    assert outdated() == []
