"""Sums with gradients of which only every other place counts (``specs.Thinned``), as convolutions of 1x1 with a stride
leave them."""

from __future__ import annotations

from math import prod
from typing import Any

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.channels import by_rows, places
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import Thinned


def keep_places(x: Any, thinned: Thinned, dtype: Any) -> Any:
    """The places of x that count, as a new array; x holds elements of ``dtype``, or sign bits of them, in which a
    place's fill some elements."""
    whole = x.view(dtype).reshape(thinned.n_places, -1)
    kept = device.load().empty((thinned.n_kept_places, whole.shape[1]), dtype)
    by_rows("keep_places", kept, (whole, kept, *places(thinned)), "thinned")
    return kept.reshape(-1).view(x.dtype)


def add_thinned(x: Any, addend: Any, thinned: Thinned, signs: Any = None) -> None:
    """x += addend, which holds the places that count alone, where ``signs``, if given, are above 0: an array of x's
    type, or sign bits."""
    expect_elems(prod(thinned.shape), x)
    rows = addend.reshape(-1, thinned.shape[1])
    expect_elems(thinned.n_kept, rows)
    is_data = signs is not None and signs.dtype == x.dtype
    by_rows("add_thinned", rows, (x, rows, signs if is_data else None, None if is_data else signs, x, *places(thinned)),
            "thinned")
