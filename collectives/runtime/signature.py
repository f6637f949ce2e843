"""What all ranks must give alike in one collective call."""

from __future__ import annotations

from dataclasses import dataclass, field

from scaffe.collectives.planning.algorithm import Algorithm


@dataclass(frozen=True)
class CallSignature:
    """One collective call as every rank must make it: ranks compare its text before they send anything.

    Attributes:
        collective: `reduce`, `bcast`, ...
        algorithm: how; resolved, but before the first call on a device.
        n_elems: length of the flat array.
        dtype: name of its element type.
        op: of a reduction.
        root: rank that a reduction ends at or a broadcast starts from.
        chunk_bytes: length of the longest message.
        memory: `host` or `device`, where the array lies.
        leaves_one_per_node: an all-reduce whose result is left in one rank's array on each node.
    """

    collective: str
    algorithm: Algorithm
    n_elems: int
    dtype: str
    op: str = "sum"
    root: int = 0
    chunk_bytes: int = 0
    memory: str = "host"
    leaves_one_per_node: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Works out the hash once: signatures are looked up at every call."""
        object.__setattr__(self, "_hash", hash((
            self.collective, self.algorithm, self.n_elems, self.dtype, self.op, self.root, self.chunk_bytes,
            self.memory, self.leaves_one_per_node)))

    def __hash__(self) -> int:
        """Equal signatures have equal hashes."""
        return self._hash

    def __str__(self) -> str:
        """All that is compared."""
        return (f"{self.collective} of {self.n_elems} x {self.dtype} in {self.memory} memory by {self.algorithm} "
                f"({self.op}, root {self.root}, chunks of {self.chunk_bytes} bytes"
                f"{', one result per node' if self.leaves_one_per_node else ''})")
