"""What all ranks must give alike in one collective call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallSignature:
    """One collective call as every rank must make it: ranks compare signatures before they send anything."""

    collective: str
    algorithm: str
    n_elems: int
    dtype: str
    op: str = "sum"
    root: int = 0
    chunk_bytes: int = 0
    place: str = "host"
    is_one_a_node: bool = False
    """An all-reduce whose result is left in one rank's array on each node."""

    def __str__(self) -> str:
        return (f"{self.collective} of {self.n_elems} x {self.dtype} in {self.place} memory by {self.algorithm} "
                f"({self.op}, root {self.root}, chunks of {self.chunk_bytes} bytes)")
