"""Choices that keep some activations as checkpoints and recompute those between them (Chen et al., arXiv 1604.06174,
2016)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scaffe.memory.plan.plan import Choice
from scaffe.memory.problem.iteration import Iteration

DISTANCES = (1, 2, 3, 4, 6, 8, 12)  # from checkpoint to checkpoint
MOST_OFFSETS = 3  # of the first checkpoint, for each distance


def dominators(iteration: Iteration) -> list[int]:
    """The activations through which every path of the net's graph passes, such as the outputs of residual blocks: what
    is computed later reads nothing older. By number, in the order in which they are computed."""
    found, last_read = list[int](), -1
    read_until = _read_until(iteration)
    for number in _in_order(iteration):
        if last_read <= iteration.tensors[number].forward[0]:
            found.append(number)
        last_read = max(last_read, read_until.get(number, -1))
    return found


def _in_order(iteration: Iteration) -> list[int]:
    activations = (number for number, tensor in enumerate(iteration.tensors)
                   if tensor.forward and not tensor.is_persistent)
    return sorted(activations, key=lambda number: iteration.tensors[number].forward[0])


def _read_until(iteration: Iteration) -> dict[int, int]:
    """For each tensor that others are recomputed from, when the last of those is first written, as a step."""
    found: dict[int, int] = {}
    for tensor in iteration.tensors:
        for number in tensor.recompute.inputs if tensor.recompute and tensor.forward else ():
            found[number] = max(found.get(number, -1), tensor.forward[0])
    return found


def checkpoints(iteration: Iteration) -> Iterator[frozenset[int]]:
    """Sets of activations to keep: every k-th of the net's dominators, and every k-th of all that can be recomputed."""
    able = [number for number in _in_order(iteration) if iteration.tensors[number].recompute]
    seen = {frozenset(able)}
    for among in (dominators(iteration), able):
        for distance in DISTANCES:
            for first in range(min(distance, MOST_OFFSETS, len(among))):
                kept = frozenset(among[first::distance])
                if kept not in seen:
                    seen.add(kept)
                    yield kept


def keeping(iteration: Iteration, kept: frozenset[int] | Sequence[int]) -> list[Choice]:
    """The choices that keep these activations, and recompute the others where that can be done."""
    return [Choice.RECOMPUTE if tensor.recompute and tensor.forward and number not in kept else Choice.KEEP
            for number, tensor in enumerate(iteration.tensors)]
