"""Finds the blobs that stay float32 in a half-precision net: labels and indices, which half precision would round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

PASSING_ON = ("Split", "Flatten", "Reshape", "Slice", "Concat")  # their tops hold what their bottoms hold


class Exactness(NamedTuple):
    """What a layer type does with float32 blobs in a half-precision net.

    Attributes:
        bottoms: indices of the bottoms that need exact values.
        tops: indices of the tops that hold integers, which its kernels can write in float32.
        converts: whether it takes and gives blobs of any type, since it always runs in float32.
    """

    bottoms: Sequence[int] = ()
    tops: Sequence[int] = ()
    converts: bool = False


def exact_blobs(layers: Sequence[Any], kind_of: Callable[[str], Exactness]) -> set[str]:
    """Names of the blobs to keep in float32, since bfloat16 is exact for integers up to 256 only, float16 to 2048.

    Such a blob comes from a layer without bottoms and goes only to bottoms that need exact values. Or it is written as
    float32 (indices, and the tops of layers that convert) and no layer that computes in half precision reads it. In
    both cases it may go through layers that only pass values on (PASSING_ON).

    Args:
        layers: LayerParameter messages in order, Split layers included.
        kind_of: layer type → its Exactness.
    """
    wanted, refused = _read(layers, kind_of)
    exact: set[str] = set()
    for layer in layers:
        kind = kind_of(layer.type)
        if not layer.bottom:
            exact |= wanted.intersection(layer.top)
        elif layer.type in PASSING_ON and all(name in exact for name in layer.bottom):
            exact |= set(layer.top)
        else:
            made = {name for i, name in enumerate(layer.top) if kind.converts or i in kind.tops}
            exact |= made.difference(layer.bottom, refused)  # in place, the blob is of its maker's type
    return exact


def _read(layers: Sequence[Any], kind_of: Callable[[str], Exactness]) -> tuple[set[str], set[str]]:
    """The blobs that some layer needs exact, and the blobs that some layer can read only in the net's type."""
    wanted: set[str] = set()
    refused: set[str] = set()
    for layer in reversed(layers):
        kind, passes = kind_of(layer.type), layer.type in PASSING_ON
        wanted |= {name for i, name in enumerate(layer.bottom) if i in kind.bottoms}
        if passes and all(name in wanted for name in layer.top):
            wanted |= set(layer.bottom)
        if not kind.converts and not (passes and refused.isdisjoint(layer.top)):
            refused |= {name for i, name in enumerate(layer.bottom) if i not in kind.bottoms}
    return wanted, refused
