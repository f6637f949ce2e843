"""Measures the machine for the planner, on all ranks at once, since they share its links, memory and cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, log2
from statistics import median

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.request import Request
from scaffe.nets.devices import load_kernels
from scaffe.nets.net import Net
from scaffe.proto import caffe_pb2
from scaffe.training.partition.planner.cost_model import Ranks
from scaffe.training.partition.planner.shapes import LayerShape
from scaffe.training.strategies.transfers import auto_bucket_bytes, plan_buckets
from scaffe.training.update_rules import update_rules
from scaffe.training.update_rules.base import Hyper

N_ELEMS, N_TIMES = 4 << 20, 3
LEAST_SUM = 0.01
"""Of a reduce-scatter's time that its sums take at least; beside a slow link they are lost in how times differ."""


def with_rate(ranks: Ranks, communicator: Communicator) -> Ranks:
    """Ranks with the multiply-adds a second of one of them, while all multiply matrices. Called by all ranks."""
    n_images, n = 64, 1024
    plan = load_kernels(1).inner_product(n_images, n, n)
    x, weights, y = (np.ones(shape, np.float32) for shape in ((n_images, n), (n, n), (n_images, n)))
    taken = _slowest(communicator, lambda: plan.forward(x.reshape(-1), weights, None, y.reshape(-1), None))
    return replace(ranks, multiply_adds_per_second=n_images * n * n / taken)


def with_links(ranks: Ranks, communicator: Communicator, layers: Sequence[LayerShape]) -> Ranks:
    """Ranks with the speeds of links between nodes, sums, packing and SGD's update. Called by all ranks.

    Links and sums are those of the helper thread, which carries them in training, in messages whose lengths are to one
    another as those of the layers' parameters: where ranks share cores, one long message takes half the time of many in
    a row, between which ranks wait for one another. Returns the same on all ranks: the speeds of the slowest, while all
    work.

    Args:
        ranks: everything else of them is kept; that of links, too, where all are on one node.
    """
    array, other = communicator.alloc(N_ELEMS), np.ones(N_ELEMS, np.float32)
    n_bytes, n_ranks = array.nbytes, communicator.n_ranks
    rule, hyper = update_rules.get("SGD")(caffe_pb2.SolverParameter(momentum=0.9)), Hyper(0.0, 0.0, False, 1.0, 0)
    history = np.zeros(N_ELEMS, np.float32)
    updating = _slowest(communicator, lambda: rule.update(other, array, [history], hyper))
    copying = _slowest(communicator, lambda: np.copyto(history, other))
    ranks = replace(ranks, update_bandwidth=n_bytes / updating, copy_bandwidth=n_bytes / copying)
    if communicator.topology.n_nodes == 1:
        return ranks
    few, sent = np.zeros(n_ranks, np.float32), (n_ranks - 1) / n_ranks * n_bytes
    start = _slowest(communicator, lambda: communicator.allgather(few)) / ceil(log2(n_ranks))
    most = auto_bucket_bytes(communicator.algorithms.bandwidth_bytes(name, array)
                             for name in ("allgather", "reduce_scatter"))
    places = cut_alike([layer.n_parameters for layer in layers], N_ELEMS)
    buckets = [array[bucket.place] for bucket in plan_buckets(list(enumerate(places)), array.itemsize, most)]
    gathering = _slowest(communicator, lambda: _wait_all([communicator.iallgather(bucket) for bucket in buckets]))
    summing = _slowest(communicator, lambda: _wait_all([communicator.ireduce_scatter(bucket) for bucket in buckets]))
    machine = replace(ranks.machine, inter_latency=start, overhead=0.0,
                      inter_bandwidth=_shared(ranks) * sent / gathering,
                      sum_bandwidth=sent / max(summing - gathering, LEAST_SUM * summing))
    return replace(ranks, machine=machine)


def cut_alike(lengths: Sequence[int], n_elems: int) -> list[slice]:
    """Intervals that share so many elements out as lengths share their sum; one of all where there are no lengths."""
    ends = np.cumsum([0, *(lengths if any(lengths) else [1])], dtype=np.float64)
    ends = np.rint(ends * (n_elems / ends[-1])).astype(int)
    return [slice(int(start), int(end)) for start, end in zip(ends, ends[1:], strict=False)]


def _shared(ranks: Ranks) -> float:
    return max(min(ranks.ranks_per_node, ranks.n_ranks) / ranks.machine.ports, 1)


def timed(layers: Sequence[LayerShape], net: Net, communicator: Communicator) -> list[LayerShape]:
    """Layers with the seconds that an image takes, measured on the whole net. Called by all ranks."""
    taken = np.zeros(len(net.nodes))
    for _again in range(2):  # the first time is not counted
        for i, node in enumerate(net.nodes):
            taken[i] = _seconds(partial(node.layer.forward, node.bottoms, node.tops))
        for i, node in reversed(list(enumerate(net.nodes))):
            taken[i] += _seconds(partial(node.layer.backward, node.tops, node.propagate_down, node.bottoms))
        communicator.barrier()
    communicator.allreduce(taken, "max")
    n_images = net.nodes[0].tops[0].shape[0]
    return [replace(layer, seconds=float(seconds) / n_images) for layer, seconds in zip(layers, taken, strict=True)]


def _slowest(communicator: Communicator, work: Callable[[], None]) -> float:
    taken = []
    for _ in range(N_TIMES + 1):  # the first is not counted
        communicator.barrier()
        taken.append(_seconds(work))
    return float(max(communicator.allgather_objects(median(taken[1:]))))


def _wait_all(requests: Sequence[Request]) -> None:
    for request in requests:
        request.wait()


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
