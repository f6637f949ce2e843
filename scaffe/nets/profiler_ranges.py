"""Names a net's layers for a profiler."""

from __future__ import annotations

from functools import cache

from scaffe.layers.kernels import nvtx
from scaffe.layers.kernels.backend import is_device
from scaffe.log import warning
from scaffe.nets.net import Net


def name_layers(net: Net, asked: bool) -> bool:
    """Put the passes of a device's layers into ranges of their names, if that is asked for or a profiler is attached.
    Returns whether they are. ``asked``: layers run one by one, since a recording is one launch without names."""
    if not is_device(net.context.kernels):
        if asked:
            _say_there_are_none()
        return False
    if not (asked or nvtx.profiler_is_attached()):
        return False
    net.span, net.shows_layers = nvtx.named, asked
    return True


@cache
def _say_there_are_none() -> None:
    warning("-nvtx: the net computes on the CPU, whose layers have no ranges; give -gpu")
