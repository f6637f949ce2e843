"""What a communicator holds of MPI, given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scaffe.collectives.fault_tolerance.losses import Losses
from scaffe.collectives.runtime.engine import Engine
from scaffe.collectives.runtime.mismatch import MismatchDetector
from scaffe.collectives.runtime.point_to_point import FaultTolerantMessages, PointToPoint
from scaffe.collectives.shared.node import NodeGroup

if TYPE_CHECKING:
    from scaffe.collectives.cuda.setup import Device


def give_back(engines: Sequence[tuple[Engine, NodeGroup, bool]], messages: Sequence[PointToPoint],
              fault_tolerant: Sequence[FaultTolerantMessages], calls: MismatchDetector, device: Device | None,
              losses: Losses) -> None:
    """Ends the threads that watch, then gives back to MPI all that is of these ranks; all of them call it.

    After a loss only the threads end.

    Args:
        engines: with their groups, as Ranks has them.
        messages: between two ranks, those of ``fault_tolerant`` too.
        fault_tolerant: that have communicators of their own.
        calls, device, losses: as Ranks has them.
    """
    for engine, _, _ in engines:
        engine.watch.close()
        engine.watch.join()
    if losses.has_loss:
        losses.close()
        return
    if device is not None:
        device.free()
    for each in messages:
        each.drain()
    calls.drain()
    for engine, node, _ in engines:
        engine.free()
        node.free()
    for own in fault_tolerant:
        own.free()
    losses.free()
