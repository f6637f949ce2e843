"""A net's outputs as Caffe logs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scaffe.log import info
from scaffe.nets.net import Net


def values_of(net: Net) -> list[float]:
    """All elements of all outputs, in the order in which they are logged; on a GPU this waits for the device."""
    to_host = net.context.kernels.to_host
    return [float(v) for _, blob, _ in net.outputs() for v in to_host(blob.data).reshape(-1)]


def shared_values(net: Net) -> list[float]:
    """``values_of`` a training net on one of several ranks: as many as all have, whose mean is to be that over the
    batch."""
    shares, to_host = net.shares.outputs, net.context.kernels.to_host
    found = [(shares.get(name, (1.0, blob.n_elems)), to_host(blob.data).reshape(-1)) for name, blob, _ in net.outputs()]
    return [factor * float(v) for (factor, length), values in found for v in values[:length]]


def by_name(net: Net, values: Sequence[float]) -> dict[str, float]:
    """``values_of`` by the outputs' names; a number follows the names of outputs that have several elements."""
    names = [f"{name}/{i}" if length > 1 else name for name, length, _ in _lengths(net) for i in range(length)]
    return dict(zip(names, values, strict=True))


def _lengths(net: Net) -> list[tuple[str, int, float]]:
    """Each output with how many of its elements are logged, and its loss weight."""
    shares = net.shares.outputs
    return [(name, shares.get(name, (1.0, blob.n_elems))[1], weight) for name, blob, weight in net.outputs()]


def output_lines(net: Net, values: Sequence[float]) -> Iterator[str]:
    """Lines like ``loss = 0.66 (* 1 = 0.66 loss)``, one per element.

    Args:
        net: gives the outputs' names and loss weights.
        values: as ``values_of`` returns them.
    """
    names = [(name, weight) for name, length, weight in _lengths(net) for _ in range(length)]
    for (name, weight), value in zip(names, values, strict=True):
        yield f"{name} = {value:g}" + (f" (* {weight:g} = {weight * value:g} loss)" if weight else "")


def logged_lines(net: Net, values: Sequence[float], kind: str) -> Iterator[str]:
    """Lines like ``    Train net output #0: loss = 0.66 (* 1 = 0.66 loss)``; kind is "Train" or "Test"."""
    for position, line in enumerate(output_lines(net, values)):
        yield f"    {kind} net output #{position}: {line}"


def log_outputs(net: Net, values: Sequence[float], kind: str) -> None:
    """Log the lines of ``logged_lines``."""
    for line in logged_lines(net, values, kind):
        info(line)
