"""``-partitions`` before nets are built: checks that this run can be divided, plans the net, and divides the ranks."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.layers.base.random import Stream
from scaffe.nets.decoding import on_host
from scaffe.nets.devices import Compute, load_kernels
from scaffe.training.assembly import NetMaker
from scaffe.training.fault_tolerance.replacement import STOP
from scaffe.training.observers.test import DETECTION
from scaffe.training.partition.division import Division
from scaffe.training.partition.options import AUTO, plan_of, ranks_of
from scaffe.training.partition.planner.shapes import LayerShape, images_of, shapes_of
from scaffe.training.partition.speeds import with_links, with_rate
from scaffe.training.ranks import together
from scaffe.training.strategies import Role, Strategy

NONE = "1"


def divided(role: Role, strategy: type[Strategy], param: Any, options: Namespace) -> Role:
    """The role with its division, where ``-partitions`` lets ranks share nets. Called by all workers. Raises UserError
    on all ranks, if this run cannot be divided so."""
    if options.partitions == NONE or (options.partitions == AUTO and role.ranks.n_ranks == 1):
        return role
    if fault := _fault(strategy, param, options):
        raise UserError(f"-partitions {options.partitions} {fault}", everywhere=True)
    ranks = role.ranks
    found = together(ranks, lambda: _shapes(param, options) if ranks.rank == 0 else None)
    layers, n_images = ranks.bcast_object(found)
    mine = n_images if options.scal == "weak" else n_images / ranks.n_ranks
    on_a_node = max(map(len, ranks.topology.nodes))
    known = ranks_of(options, ranks.n_ranks, mine, on_a_node)
    if not options.multiply_adds:
        known = with_rate(known, ranks)
    if not options.link_bandwidth:
        known = with_links(known, ranks, layers)
    plan = together(ranks, lambda: plan_of(options.partitions, layers, known))
    if plan.n_partitions == 1:
        return role
    is_uneven = options.scal != "weak" and n_images % ranks.n_ranks
    division = Division.of(ranks, plan, n_images if is_uneven else 0)
    division.log()
    return role.divided(division)


def _fault(strategy: type[Strategy], param: Any, options: Namespace) -> str:
    """Why this run cannot be divided; "" if it can."""
    compute, trains_parts = Compute.of(options), strategy.roles.trains_parts
    faults = {"does not go with this strategy; sc-rs, ssp and downpour are some that do": not trains_parts,
              "does not go with -on_rank_loss": options.on_rank_loss != STOP,
              "does not go with -memory": bool(options.memory),
              "does not go with eval_type detection": param.eval_type == DETECTION,
              "is for nets on CPUs in float32": compute.dtype.itemsize != 4 or bool(options.gpu)}
    return next((fault for fault, is_so in faults.items() if is_so), "")


def _shapes(param: Any, options: Namespace) -> tuple[list[LayerShape], int]:
    net = NetMaker(param, on_host(options), load_kernels(1), Stream(0), Share(), fills=False).train_net()
    try:
        return shapes_of(net), images_of(net)
    finally:
        net.close()
