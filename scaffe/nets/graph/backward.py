"""Looks through a net's graph: which layers backward visits, and which blobs stay float32 in half precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class BackwardSpec:
    """What the plan needs to know about a layer.

    Attributes:
        propagate_down: as the prototxt gives it: one per bottom, or empty.
        loss: for each top, whether it has a loss weight.
        learns: whether one of its parameters has a learning rate other than 0.
        allows_force: for each bottom, whether ``force_backward`` may ask for its gradient.
    """

    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    propagate_down: tuple[bool, ...]
    loss: tuple[bool, ...]
    learns: bool
    allows_force: tuple[bool, ...]


@dataclass
class BackwardPlan:
    """Whether backward visits a layer, and for each bottom whether it computes the gradient."""

    needs_backward: bool
    propagate_down: list[bool]


def plan_backward(specs: Sequence[BackwardSpec], force: bool = False) -> list[BackwardPlan]:
    """Plan the backward pass as Caffe 1.0 does.

    A bottom's gradient is computed if a layer before it learns (or ``propagate_down`` says so) and a loss after it
    depends on it. ``force``: Caffe's ``force_backward``: visit every layer, and compute the gradient of every bottom
    that allows it."""
    plans = _by_what_learns(specs)
    _drop_what_no_loss_sees(specs, plans)
    if force:
        for spec, plan in zip(specs, plans, strict=True):
            plan.needs_backward = True
            plan.propagate_down = [a or b for a, b in zip(plan.propagate_down, spec.allows_force, strict=False)]
    return plans


def _by_what_learns(specs: Sequence[BackwardSpec]) -> list[BackwardPlan]:
    wanted: dict[str, bool] = {}
    plans = []
    for spec in specs:
        below = [wanted.get(name, False) for name in spec.bottoms]
        chosen = list(spec.propagate_down) or below
        needs = spec.learns or any(below)
        wanted.update(dict.fromkeys(spec.tops, needs))
        plans.append(BackwardPlan(needs, chosen))
    return plans


def _drop_what_no_loss_sees(specs: Sequence[BackwardSpec], plans: list[BackwardPlan]) -> None:
    under_loss: set[str] = set()
    skipped: set[str] = set()
    for spec, plan in zip(reversed(specs), reversed(plans), strict=True):
        contributes = any(spec.loss) or not under_loss.isdisjoint(spec.tops)
        if (plan.needs_backward and skipped.issuperset(spec.tops)) or not contributes:
            plan.needs_backward = False
            plan.propagate_down = [False] * len(plan.propagate_down)
        for name, needed in zip(spec.bottoms, plan.propagate_down, strict=False):
            if contributes:
                under_loss.add(name)
            if not needed:
                skipped.add(name)


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
    both cases it may go through layers that only pass values on (PASSING_ON). ``layers``: LayerParameter messages in
    order, Split layers included."""
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
