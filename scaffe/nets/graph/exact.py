"""Which blobs stay float32 in a half-precision net: labels and indices, integers that half precision would round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

PASSING_ON = ("Split", "Flatten", "Reshape", "Slice", "Concat")  # their tops hold what their bottoms hold


def exact_blobs(layers: Sequence[Any], exact_bottoms: Callable[[str], Sequence[int]]) -> set[str]:
    """Names of the blobs to keep in float32, since bfloat16 is exact for integers up to 256 only, float16 to 2048.

    Such a blob comes from a layer without bottoms and goes only to bottoms that need exact values; in both directions
    it may pass through layers that only pass values on (PASSING_ON).

    Args:
        layers: LayerParameter messages in order, Split layers included.
        exact_bottoms: layer type → indices of its bottoms that need exact values.
    """
    wanted: set[str] = set()
    for layer in reversed(layers):
        picked = exact_bottoms(layer.type)
        wanted |= {name for i, name in enumerate(layer.bottom) if i in picked}
        if layer.type in PASSING_ON and all(name in wanted for name in layer.top):
            wanted |= set(layer.bottom)
    exact: set[str] = set()
    for layer in layers:
        passed_on = layer.type in PASSING_ON and all(name in exact for name in layer.bottom)
        if not layer.bottom or passed_on:
            exact |= wanted.intersection(layer.top)
    return exact
