"""Turns a call's arguments into a signature: checked, agreed on by all ranks once, then looked up."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.datatypes import NAMES, check_op, dtype_name
from scaffe.collectives.runtime import memories
from scaffe.collectives.runtime.arguments import CallSignature, bounded, existing_rank, integer
from scaffe.collectives.runtime.one_rank import OneRank
from scaffe.collectives.tuning.device_choice import BANDWIDTH_BYTES
from scaffe.collectives.tuning.selector import Selector

if TYPE_CHECKING:
    from scaffe.collectives.runtime.ranks import Ranks

Resolved = tuple[CallSignature, Any, Any]
"""A call's signature, the flat array to work in, and the one that holds the values."""
Known = list[CallSignature | None]
"""The agreed signature of a call on host memory: for private memory, and for a window that the node's ranks share."""


class Resolver:
    """Signatures of the calls of one communicator; which algorithms its ranks can use, and how `auto` chooses."""

    def __init__(self, rank: int, ranks: Ranks | OneRank, selector: Selector) -> None:
        self._rank, self._ranks, self._selector = rank, ranks, selector
        self._find, self._record = ranks.windows.find, ranks.calls.record
        self._known: dict[tuple[Any, ...], Known] = {}
        self._as_if_shared = False

    def resolve(self, collective: str, array: Any, op: str, root: int, algorithm: str, chunk_bytes: int,
                out: Any = None, is_on_helper: bool = False) -> Resolved:
        """Records a call that all ranks make; see Communicator for the arguments. Raises CommError: the same on every
        rank, where one cannot make the call or they differ."""
        if out is None and type(array) is np.ndarray and array.flags.carray and type(root) is type(chunk_bytes) is int:
            key = (collective, algorithm, array.size, array.dtype, op, root, chunk_bytes, is_on_helper)
            try:
                known = self._known.get(key)
            except TypeError:  # an argument that is no key is a mistake
                known = None
            if known is not None:
                flat = array if array.ndim == 1 else array.reshape(-1)
                signature = known[0 if known[0] is known[1] or self._find(flat) is None else 1]
                if signature is not None:
                    self._record(signature)
                    return signature, flat, flat
        return self._resolve_anew(collective, array, op, root, algorithm, chunk_bytes, out, is_on_helper)

    def can(self, collective: str, algorithm: str) -> bool:
        """Whether `algorithm` can do `collective` on these ranks; False for an unknown name."""
        with suppress(CommError):
            return self._selector.can(collective, parse(algorithm))
        return False

    def check(self, algorithm: str) -> None:
        """Raises CommError, the same on every rank, unless an algorithm has that name."""
        try:
            parse(algorithm)
        except CommError as error:
            raise CommError(str(error), everywhere=True) from None

    def choose_as_if_shared(self) -> None:
        """Gives private memory the algorithms of memory from `alloc` from now on. Every rank calls it."""
        self._as_if_shared = True

    def bandwidth_bytes(self, collective: str, array: Any) -> int:
        """The least length of a part of `array`, in bytes, at which bandwidth and not latency decides the time of
        `collective` on it, by the tuned table; 0 on one rank."""
        if isinstance(self._ranks, OneRank):
            return 0
        if memories.of(array) is memories.DEVICE:
            return self._selector.bandwidth_bytes(collective, "device", BANDWIDTH_BYTES)
        topology = self._ranks.topology
        lies_there = self._as_if_shared or self._find(memories.HOST.flat(array)) is not None
        is_shared = topology.n_nodes < topology.n_ranks and lies_there
        return self._selector.bandwidth_bytes(collective, "shared" if is_shared else "host")

    def _resolve_anew(self, collective: str, array: Any, op: str, root: int, algorithm: str, chunk_bytes: int,
                      out: Any, is_on_helper: bool) -> Resolved:
        try:
            how = self._asked(collective, op, root, algorithm, chunk_bytes)
            memory = memories.of(array)
            source = memory.flat(array)
            flat = source if out is None else _like(source, memories.of(out).flat(out))
            if not (collective == "bcast" and how.root == self._rank):
                _require_writable(memory, array if out is None else out)
            which, signature = self._signature(how, memory, flat, is_on_helper)
            if is_on_helper:
                self._ranks.refuse_on_helper(signature)
        except CommError as error:
            if error.everywhere:
                raise
            self._ranks.refuse(collective, str(error))
        self._ranks.agree(signature)
        if out is None and type(array) is np.ndarray:
            key = (collective, algorithm, array.size, array.dtype, op, how.root, how.chunk_bytes, is_on_helper)
            known = self._known.setdefault(key, [None, None])
            for index in which:
                known[index] = signature
        if source is not flat and not signature.algorithm.library:
            source = memory.prepared(flat, source)
        return signature, flat, source

    def _asked(self, collective: str, op: Any, root: Any, algorithm: Any, chunk_bytes: Any) -> CallSignature:
        """The signature of all arguments but the array."""
        check_op(op)
        root = existing_rank("root", root, self._ranks.topology.n_ranks)
        chunk_bytes = integer("chunk_bytes", chunk_bytes)
        if chunk_bytes < 0:
            raise CommError(f"chunk_bytes must be 0 for the default or more, not {chunk_bytes}")
        bounded("chunk_bytes", chunk_bytes, 0)
        return CallSignature(collective, parse(algorithm), 0, "", op, root, chunk_bytes)

    def _signature(self, how: CallSignature, memory: memories.HostMemory, flat: Any,
                   is_on_helper: bool) -> tuple[tuple[int, ...], CallSignature]:
        """The resolved signature of the call on `flat`, and for which indices of Known it holds."""
        if memory is memories.DEVICE:
            asked = replace(how, n_elems=flat.size, dtype=dtype_name(flat.dtype), memory=memory.name)
            return (), self._ranks.resolved_on_device(asked, flat, self._selector.table)
        algorithm = how.algorithm
        if is_on_helper and algorithm.selection:
            algorithm = replace(algorithm, selection="own")
        private, shared = (self._selector.choose(how.collective, algorithm, how.chunk_bytes, flat.nbytes, is_shared)
                           for is_shared in (self._as_if_shared, bool(algorithm.selection)))
        which: tuple[int, ...] = (0, 1)
        if private != shared:
            which = (0,) if self._find(flat) is None else (1,)
        chosen = private if 0 in which else shared
        return which, replace(how, algorithm=chosen.algorithm, n_elems=flat.size, dtype=NAMES[flat.dtype],
                              chunk_bytes=chosen.chunk_bytes)

    def shared_result(self, array: Any, op: str, algorithm: str, chunk_bytes: int) -> tuple[CallSignature, Any]:
        """The signature of `Communicator.allreduce_shared`, agreed on, and the flat array."""
        try:
            how = self._asked("allreduce", op, 0, algorithm, chunk_bytes)
            memory = memories.of(array)
            flat = memory.flat(array)
            _require_writable(memory, array)
            signature = self._leaving_one_per_node(how, memory, flat)
        except CommError as error:
            self._ranks.refuse("allreduce_shared", str(error))
        self._ranks.agree(signature)
        return signature, flat

    def _leaving_one_per_node(self, how: CallSignature, memory: memories.HostMemory, flat: Any) -> CallSignature:
        algorithm, topology = how.algorithm, self._ranks.topology
        if topology.n_ranks > 1 and flat.size:
            if memory is memories.DEVICE or self._find(flat) is None:
                raise CommError("a shared result needs an array in host memory from alloc")
            if algorithm.selection:
                algorithm = parse("M" if topology.n_nodes == 1 else "MR")
            if not algorithm.is_shared:
                raise CommError(f"a shared result needs an algorithm that starts with M or S, not '{how.algorithm}'")
        _, chunk_bytes = self._selector.choose("allreduce", algorithm, how.chunk_bytes, flat.nbytes, True)
        return replace(how, algorithm=algorithm, n_elems=flat.size, dtype=dtype_name(flat.dtype),
                       chunk_bytes=chunk_bytes, memory=memory.name, leaves_one_per_node=True)


def _like(array: Any, out: Any) -> Any:
    """Returns `out`. Raises CommError unless it is like the array."""
    if out.size != array.size or out.dtype != array.dtype or type(out) is not type(array):
        raise CommError(f"out must be {array.size} x {array.dtype}, not {out.size} x {out.dtype}"
                        + ("" if type(out) is type(array) else ", and in the same memory"))
    return out


def _require_writable(memory: memories.HostMemory, array: Any) -> None:
    if not memory.is_writable(array):
        raise CommError("the collective writes into its array, which is read-only: give a copy, or `out`")
