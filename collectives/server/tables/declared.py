"""Whether all ranks have declared the same parameter server. Pure: what they came with is text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.tables.roles import Roles
from scaffe.collectives.server.tables.table import Index, Table


def declared(slack: float, roles: Roles, tables: Sequence[Table], folder: str = "") -> list[str]:
    """What a rank has declared, so that ranks can be compared and the first difference be said."""
    copies = ", with second copies" * roles.keeps_copies
    places = f", tables in folder {folder}" * bool(folder)
    return [f"slack {slack:g}{copies}{places}", f"workers {_ranks(roles.workers)}, shards on {_ranks(roles.shards)}",
            *(f"table {table.name!r} of {table.n_rows} x {table.row_elems} {table.dtype}"
              f"{'' if table.merges else ', whose rule does not merge'}" for table in tables)]


def check_same(everyone: Sequence[Sequence[str]]) -> None:
    """Raise CommError, on every rank, unless all have declared the same."""
    for rank, own in enumerate(everyone):
        for first, other in zip_longest(everyone[0], own, fillvalue="no more tables"):
            if first != other:
                raise CommError(f"ranks declare different parameter servers: rank 0 has {first}, rank {rank} has "
                                f"{other}", everywhere=True)


def check_batches(everyone: Sequence[Sequence[Index]]) -> None:
    """Raise CommError, on every rank, unless all workers have as many batches, each over the same table."""
    for worker, own in enumerate(everyone):
        if [index.table for index in own] != [index.table for index in everyone[0]]:
            raise CommError(f"workers' batches differ: worker 0's are of tables {_named(everyone[0])}, "
                            f"worker {worker}'s of {_named(own)}", everywhere=True)


def _named(batches: Sequence[Index]) -> str:
    return ", ".join(index.table.name for index in batches) or "none"


def _ranks(ranks: Sequence[int]) -> str:
    in_a_row = len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1
    return f"{ranks[0]} to {ranks[-1]}" if in_a_row else str(list(ranks))
