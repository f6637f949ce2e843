"""Shapes as Caffe's older layers see them: always four axes."""

from __future__ import annotations

from scaffe.layers.base.blob import Shape


def as_four_axes(shape: Shape) -> Shape:
    """(num, channels, height, width) of a shape of at most four axes: those that it lacks have length 1."""
    return (*shape, *(1,) * (4 - len(shape)))
