"""Plans backward: which layers it visits, and which bottoms get a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BackwardSpec:
    """What the plan needs to know about a layer.

    Attributes:
        bottoms, tops: blob names.
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
    depends on it.

    Args:
        specs: the layers in forward order.
        force: Caffe's ``force_backward``: visit every layer, and compute the gradient of every bottom that allows it.

    Returns:
        one plan per layer, in the same order.
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
