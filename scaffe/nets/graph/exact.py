"""Which blobs of a net in half precision hold whole numbers that the type would round: labels and indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

PASSING_ON = ("Split", "Flatten", "Reshape", "Slice", "Concat")  # their tops hold what their bottoms hold


def exact_blobs(layers: Sequence[Any], exact_bottoms: Callable[[str], Sequence[int]]) -> set[str]:
    """Names of the blobs to keep in float32 (bfloat16 counts to 256, float16 to 2048).

    They come from layers without bottoms, or through layers that only pass them on, and go nowhere but to bottoms that
    want them exact.

    Args:
        layers: LayerParameter messages in order, splits and all.
        exact_bottoms: layer type → the indices of such bottoms.
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
