"""A process group of torch.distributed over our collectives."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from scaffe.collectives import CommError, Communicator
from scaffe.torch.calls import Calls, Reduction
from scaffe.torch.exchange import check_tag, exchange, gather_all, reduce_and_scatter
from scaffe.torch.rendezvous import world
from scaffe.torch.tensors import movable, put_bytes, put_values, reducible
from scaffe.torch.work import CollectiveWork, MessageWork

NAME = "scaffe"
Tensors = Sequence[torch.Tensor]


class ScaffeGroup(ProcessGroup):  # type: ignore[misc]
    """See torch.distributed for what the calls do; their names and arguments are those of PyTorch's C++ interface.

    Tensors are of any dtype to be moved, of float, int and bool dtypes to be reduced; results are written in place.
    Contiguous tensors of float32/64/16 and int32/64 are never copied by reductions and broadcasts.

    Attributes:
        communicator: of the group's ranks, in their order.
    """

    def __init__(self, communicator: Communicator) -> None:
        super().__init__(communicator.rank, communicator.n_ranks)
        self.communicator = communicator
        self._name = ""

    def _set_group_name(self, name: str) -> None:
        """Keeps what PyTorch calls the group; its own class would ask backends, of which this group has none."""
        self._name = name

    def getGroupName(self) -> str:
        """What PyTorch calls the group; its C++ finds groups by that name."""
        return self._name

    group_name = property(getGroupName)

    def _get_backend(self, device: torch.device) -> ScaffeGroup:
        """The backend for tensors of a device: the group itself, which has no backends of its own."""
        return self

    def getBackendName(self) -> str:
        """The name that `init_process_group` takes."""
        return NAME

    # --- one tensor a rank

    def allreduce(self, tensors: Tensors, opts: Any) -> CollectiveWork:
        """Each tensor becomes the reduction over ranks."""
        calls, reduction = self._calls(opts), Reduction.of(opts.reduceOp, self.size())
        for tensor in tensors:
            flat = reducible(tensor)
            calls.run("allreduce", flat, reduction.op)
            reduction.finish(calls, flat)
            calls.then(put_values, flat, tensor)
        return calls.work(tensors)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Tensors, opts: Any) -> CollectiveWork:
        """Each tensor becomes the root's."""
        calls = self._calls(opts)
        for tensor in tensors:
            flat = movable(tensor)
            calls.run("bcast", flat, opts.rootRank)
            calls.then(put_bytes, flat, tensor)
        return calls.work(tensors)

    def reduce(self, tensors: Tensors, opts: Any) -> CollectiveWork:
        """The root's tensors become the reduction; the others' stay."""
        calls, reduction = self._calls(opts), Reduction.of(opts.reduceOp, self.size())
        for tensor in tensors:
            is_root = self.rank() == opts.rootRank
            flat = reducible(tensor if is_root else tensor.clone())
            calls.run("reduce", flat, opts.rootRank, reduction.op)
            if is_root:
                reduction.finish(calls, flat)
                calls.then(put_values, flat, tensor)
        return calls.work(tensors)

    def barrier(self, opts: Any = None) -> CollectiveWork:
        """Is complete when every rank has called it and what it called before is complete."""
        calls = Calls(self.communicator, is_async=True)
        calls.run("allreduce", torch.zeros(1, dtype=torch.float32), "sum")
        return calls.work([])

    # --- parts of ranks

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors,
                  opts: Any) -> CollectiveWork:
        """outputs[i][r] becomes rank r's inputs[i]; the tensors of different ranks may differ in shape."""
        calls = self._calls(opts)
        for parts, own in zip(outputs, inputs, strict=True):
            gather_all(calls, parts, own, self.rank())
        return calls.work(outputs)

    def all_gather_single(self, output: torch.Tensor, own: torch.Tensor, opts: Any) -> CollectiveWork:
        """`output` becomes all ranks' `own`, one behind another."""
        return self.all_gather_single_coalesced([output], [own], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> CollectiveWork:
        """`all_gather_single` of several."""
        calls = self._calls(opts)
        for output, own in zip(outputs, inputs, strict=True):
            gather_all(calls, self._parts(output), own, self.rank())
        return calls.work(outputs)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors],
                       opts: Any) -> CollectiveWork:
        """outputs[i] becomes the reduction of inputs[i][r], r being this rank, which stay."""
        calls, reduction = self._calls(opts), Reduction.of(opts.reduceOp, self.size())
        for output, parts in zip(outputs, inputs, strict=True):
            reduce_and_scatter(calls, output, parts, self.rank(), reduction)
        return calls.work(outputs)

    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor, opts: Any) -> CollectiveWork:
        """`output` becomes the reduction of this rank's part of `whole`, which stays."""
        return self.reduce_scatter_single_coalesced([output], [whole], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> CollectiveWork:
        """`reduce_scatter_single` of several."""
        return self.reduce_scatter(outputs, [self._parts(whole) for whole in inputs], opts)

    # --- every pair of ranks

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> MessageWork:
        """outputs[r] becomes rank r's inputs[this rank]."""
        return exchange(self.communicator, dict(enumerate(inputs)), dict(enumerate(outputs)), outputs)

    def all_to_all_single(self, output: torch.Tensor, whole: torch.Tensor, output_splits: Sequence[int],
                          splits: Sequence[int], opts: Any) -> MessageWork:
        """As `alltoall`, on rows of one tensor each; equal numbers of rows where no splits are given."""
        return self.alltoall(self._rows(output, output_splits), self._rows(whole, splits), opts)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> MessageWork:
        """On the root outputs[0][r] becomes rank r's inputs[0]."""
        found = dict(enumerate(outputs[0])) if self.rank() == opts.rootRank else {}
        return exchange(self.communicator, {opts.rootRank: inputs[0]}, found, outputs)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> MessageWork:
        """outputs[0] becomes the root's inputs[0][this rank]."""
        given = dict(enumerate(inputs[0])) if self.rank() == opts.rootRank else {}
        return exchange(self.communicator, given, {opts.rootRank: outputs[0]}, outputs)

    # --- two ranks

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> MessageWork:
        """Sends a tensor to rank `peer`."""
        return exchange(self.communicator, {peer: tensors[0]}, {}, tensors, check_tag(tag))

    def recv(self, tensors: Tensors, peer: int, tag: int = 0) -> MessageWork:
        """Receives a tensor of the same length from rank `peer`."""
        return exchange(self.communicator, {}, {peer: tensors[0]}, tensors, check_tag(tag))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> MessageWork:
        """Receives a tensor of the same length from whichever rank sends one first."""
        return self.recv(tensors, -1, tag)

    # PyTorch's names before 2.13
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _calls(self, opts: Any) -> Calls:
        return Calls(self.communicator, getattr(opts, "asyncOp", True))

    def _parts(self, whole: torch.Tensor) -> Tensors:
        """A tensor's equal parts, flat, one for each rank."""
        parts: Tensors = whole.detach().view(-1).view(self.size(), -1).unbind()
        return parts

    def _rows(self, whole: torch.Tensor, splits: Sequence[int]) -> Tensors:
        n_ranks = self.size()
        rows: Tensors = whole.detach().split(list(splits) or [len(whole) // n_ranks] * n_ranks)
        return rows


def register() -> None:
    """Registers the backend with torch.distributed."""
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> ScaffeGroup:
    """What torch.distributed calls on each rank of a new group."""
    everyone, ranks = world(), list(options.global_ranks_in_group)
    is_world = not ranks or ranks == list(range(everyone.n_ranks))
    communicator = everyone if is_world else everyone.subset(ranks)
    n_ranks = 0 if communicator is None else communicator.n_ranks
    if communicator is None or (communicator.rank, n_ranks) != (options.group_rank, options.group_size):
        raise CommError(f"rank {everyone.rank}: a group of {options.group_size} ranks as torch.distributed has it, but "
                        f"{n_ranks} as MPI has it: start the ranks with mpirun, mpiexec or srun")
    if is_world:
        _end_together(everyone)
    return ScaffeGroup(communicator)


def _end_together(communicator: Communicator) -> None:
    """Has an uncaught exception print one line and end the job on all ranks."""
    communicator.install_excepthook()
    inner = sys.excepthook

    def hook(*error: Any) -> None:
        if sys.__stderr__ is not None:
            sys.stderr = sys.__stderr__  # init_process_group's hook holds back what is said, until it is too late
        inner(*error)

    sys.excepthook = hook
