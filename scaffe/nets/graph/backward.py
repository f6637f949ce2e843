"""Which layers backward visits, and which bottoms it computes gradients for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BackwardSpec:
    """What the plan needs to know of a layer.

    Attributes:
        bottoms, tops: blob names.
        propagate_down: as the prototxt gives it, one a bottom, or empty.
        loss: per top, whether it has a loss weight.
        learns: one of its parameters has a learning rate.
        allows_force: per bottom, whether force_backward may ask for its gradient.
    """

    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    propagate_down: tuple[bool, ...]
    loss: tuple[bool, ...]
    learns: bool
    allows_force: tuple[bool, ...]


@dataclass
class BackwardPlan:
    """Whether backward visits a layer, and per bottom whether it computes the gradient."""

    needs_backward: bool
    propagate_down: list[bool]


def plan_backward(specs: Sequence[BackwardSpec], force: bool = False) -> list[BackwardPlan]:
    """Plan the backward pass of layers in order, as Caffe 1.0 does.

    A gradient is computed where something before it learns (or ``propagate_down`` says so) and a loss lies behind
    it. With ``force`` every layer is visited, and every bottom that allows it gets its gradient.
    """
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
