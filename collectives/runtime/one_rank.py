"""One rank without MPI: the methods of `Ranks` where there are no other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from scaffe.collectives.errors import CommError
from scaffe.collectives.request import Request
from scaffe.collectives.runtime import memories
from scaffe.collectives.runtime.arguments import Allocation, CallSignature, existing_rank
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport.host_memory import shortage
from scaffe.collectives.tuning.device_choice import ONE_CARD, Links


class OneRank:
    """The methods of Ranks for one rank: nothing is agreed on, sent or waited for."""

    def __init__(self) -> None:
        self.topology, self.patience = Topology([0]), 0.0
        self.windows: Any = SimpleNamespace(find=lambda array: None)  # no memory is shared
        self.calls = SimpleNamespace(record=lambda call: None)
        self.losses = None
        self.has_ended = False

    def _nothing(self, *arguments: Any) -> None:
        """There is nobody to agree with, to wait for or to lose."""

    agree = refuse_on_helper = barrier = wait_for_device = check_lost = free = _nothing

    def run(self, signature: CallSignature, array: Any, source: Any) -> None:
        """See Ranks. The values are the result."""
        if source is not array:
            memories.named(signature.memory).copy(array, source)

    def submit(self, signature: CallSignature, array: Any, source: Any, after: Any = None) -> Request:
        point = memories.named(signature.memory).point(after)
        self.run(signature, array, source)
        return Request.completed(f"rank 0: i{signature.collective}", point)

    def refuse(self, what: str, fault: str) -> NoReturn:
        raise CommError(fault, everywhere=True)

    def resolved_on_device(self, signature: CallSignature, array: Any, table: Any) -> CallSignature:
        """See Ranks. No device is set up where nothing moves."""
        return signature

    def alloc(self, asked: Allocation) -> Any:
        n_elems, dtype, memory, fault = asked
        n_bytes = n_elems * dtype.itemsize
        if not fault and memory == "host":
            fault = shortage(n_bytes, f"{n_bytes} bytes")
        if fault:
            raise CommError(f"alloc: {fault}", everywhere=True)
        return memories.named(memory).zeros(n_elems, dtype)

    def describe_device(self) -> str:
        return "one rank by itself"

    def links(self) -> Links:
        return Links(ONE_CARD)

    def fault_tolerant_messages(self) -> NoReturn:
        raise CommError("a message needs 2 ranks, this job has 1")

    messages = property(fault_tolerant_messages)

    def message_pair(self, array: Any) -> NoReturn:
        self.fault_tolerant_messages()

    def subset(self, ranks: Sequence[int]) -> tuple[Any, list[int]]:
        return None, []

    def end(self) -> NoReturn:
        raise CommError("one rank by itself has none to lose")

    def exchange(self, call: str, value: Any, root: Any = 0) -> Any:
        try:
            existing_rank("root", root, 1)
        except CommError as error:
            self.refuse(call, str(error))
        return value if call == "bcast" else [value]
