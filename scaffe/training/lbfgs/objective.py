"""The optimizer's interface: the requests by which it reaches vectors and net, and the objectives that make them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from scaffe.collectives.server.vectors import commands as c
from scaffe.collectives.server.vectors.commands import Command
from scaffe.training.lbfgs.line_search import Backtrack, Point, Rules, Wolfe


@dataclass(frozen=True)
class Run:
    """Carry these commands out on all shards. The answer: an array for each command that reduces, in their order."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Evaluate:
    """Make one pass over the batch with the parameters in vector ``at``, and leave the gradient in vector ``into``.

    The answer: the mean loss, a float.
    """

    at: str
    into: str


Request = Run | Evaluate
Requests = Generator[Request, Any, Any]
"""Asks with ``yield``, and gets the answer as its value."""


X, TRIAL, DIRECTION, DECAY, SPARE = SHARED = "x", "trial", "d", "decay", "spare"  # by both objectives


class Smooth:
    """The loss, and with a decay ½ Σ decayᵢ xᵢ² besides. ``has_decay``: whether there is one; its factors are the
    vector ``decay``."""

    vectors: ClassVar[tuple[str, ...]] = SHARED

    def __init__(self, has_decay: bool) -> None:
        self._has_decay = has_decay

    def value(self, at: str, into: str) -> Requests:
        """Evaluate at a point. Returns the objective there, the loss alone, and the slope along the direction."""
        loss = yield Evaluate(at, into)
        slope = c.Dots((into,), (DIRECTION,))
        if not self._has_decay:
            (dots,) = yield Run((slope,))
            return loss, loss, float(dots[0, 0])
        squares, dots = yield Run((c.Multiply(DECAY, at, SPARE), c.Axpy(1.0, SPARE, into), c.Dots((SPARE,), (at,)),
                                   slope))
        return loss + float(squares[0, 0]) / 2, loss, float(dots[0, 0])

    def downhill(self, g: str) -> tuple[str, tuple[c.Command, ...]]:
        """The vector that directions descend along, and what makes it once x and its gradient ``g`` are known."""
        return g, ()

    def aim(self, factors: Mapping[str, float], downhill: str) -> tuple[c.Command, ...]:
        """What makes the direction of a combination of vectors."""
        return (c.Combine(tuple(factors.values()), tuple(factors), DIRECTION),)

    def reach(self, step: float) -> tuple[c.Command, ...]:
        """What makes the trial point at so many times the direction."""
        return (c.Combine((1.0, step), (X, DIRECTION), TRIAL),)

    def search(self, start: Point, rules: Rules) -> Wolfe:
        return Wolfe(start, rules)


class Orthantwise:
    """The loss and Σ decayᵢ |xᵢ|, by OWL-QN (Andrew & Gao, ICML 2007): a step stays in one orthant."""

    _downhill, _orthant = "pseudo-gradient", "orthant"
    vectors: ClassVar[tuple[str, ...]] = *SHARED, _downhill, _orthant

    def value(self, at: str, into: str) -> Requests:
        """See Smooth: the search is told by how much the pseudo-gradient at x says that the point falls."""
        loss = yield Evaluate(at, into)
        penalty, fall = yield Run((c.Norm(at, 1, DECAY), c.Combine((1.0, -1.0), (at, X), SPARE),
                                   c.Dots((SPARE,), (self._downhill,))))
        return loss + float(penalty[0]), loss, float(fall[0, 0])

    def downhill(self, g: str) -> tuple[str, tuple[c.Command, ...]]:
        return self._downhill, (c.SteepestL1(X, g, DECAY, self._downhill),)

    def aim(self, factors: Mapping[str, float], downhill: str) -> tuple[c.Command, ...]:
        """See Smooth: what points against the pseudo-gradient's descent is left out."""
        return (c.Combine(tuple(factors.values()), tuple(factors), DIRECTION),
                c.KeepSigns(DIRECTION, downhill, -1.0, DIRECTION), c.Orthant(X, downhill, self._orthant))

    def reach(self, step: float) -> tuple[c.Command, ...]:
        """See Smooth: what would leave the orthant stays at 0."""
        return (c.Combine((1.0, step), (X, DIRECTION), TRIAL), c.KeepSigns(TRIAL, self._orthant, 1.0, TRIAL))

    def search(self, start: Point, rules: Rules) -> Wolfe:
        return Backtrack(start, rules)


Objective = Smooth | Orthantwise
"""What ``descent.Lbfgs`` asks; gradients are vectors of the loss and, if smooth, its decay. ``vectors``: the names of
all that it may make on the shards."""


def first_commands(has_decay: bool, is_l1: bool, decay: tuple[tuple[int, int, float], ...]) -> tuple[Any, ...]:
    """What makes the vectors that exist before the first evaluation. ``decay``: its factor in each interval of the
    parameters, (start, stop, factor)."""
    made: list[c.Command] = [c.Zero(DIRECTION)]
    if has_decay:
        made.append(c.Fill(decay, DECAY))
    if is_l1:
        made.append(c.Zero("pseudo-gradient"))
    return tuple(made)
