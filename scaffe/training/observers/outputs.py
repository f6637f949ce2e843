"""A net's outputs as Caffe logs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scaffe.log import info
from scaffe.nets.net import Net


def values_of(net: Net) -> list[float]:
    """All elements of all outputs, in the order in which they are logged; on a GPU this waits for the device."""
    to_host = net.context.kernels.to_host
    return [float(v) for _, blob, _ in net.outputs() for v in to_host(blob.data).reshape(-1)]


def by_name(net: Net, values: Sequence[float]) -> dict[str, float]:
    """``values_of`` by the outputs' names; a number follows the names of outputs that have several elements."""
    names = [f"{name}/{i}" if blob.n_elems > 1 else name
             for name, blob, _ in net.outputs() for i in range(blob.n_elems)]
    return dict(zip(names, values, strict=True))


def output_lines(net: Net, values: Sequence[float]) -> Iterator[str]:
    """Lines like ``loss = 0.66 (* 1 = 0.66 loss)``, one per element.

    Args:
        net: gives the outputs' names and loss weights.
        values: as ``values_of`` returns them.
    """
    names = [(name, weight) for name, blob, weight in net.outputs() for _ in range(blob.n_elems)]
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
