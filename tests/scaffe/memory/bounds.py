"""The least time of an iteration within a limit, whatever the plan: from bytes, the link and what is computed again."""

from __future__ import annotations

from itertools import pairwise

from scaffe.memory.plan.greedy import needs
from scaffe.memory.plan.plan import Choice

WAITS = 400  # that are tried, each a 200th of the iteration


def least_slowdown(iteration, n_bytes, bandwidth):
    """A multiple of the iteration's time without a limit. In each step, what exceeds the limit has left: over the link
    since its last use, and back before its next one, or it is computed again, the cheapest first, as if its inputs were
    there. Parts of tensors may do either, and waits help all moves."""
    compute, starts = sum(iteration.seconds), iteration.starts()
    whole = needs(iteration, [Choice.KEEP] * len(iteration.tensors))
    waits = [compute * i / (WAITS / 2) for i in range(WAITS)]
    return max((_of_step(iteration, step, used - n_bytes, starts, bandwidth, waits)
                for step, used in enumerate(whole.n_bytes) if used > n_bytes), default=compute) / compute


def _of_step(iteration, step, excess, starts, bandwidth, waits):
    windows = [(tensor.n_bytes, *window) for tensor in iteration.tensors
               if (window := _window(tensor, step, starts)) is not None]
    again = sorted((iteration.recompute_seconds(i) / tensor.n_bytes, tensor.n_bytes)
                   for i, tensor in enumerate(iteration.tensors)
                   if tensor.recompute and tensor.forward and tensor.forward[-1] < step and (
                       not tensor.backward or step < tensor.backward[0]))
    least = float("inf")
    for wait, more in pairwise(waits):  # a move may have all of the longer one, the iteration only the shorter
        out = _moved([(n, starts[step] - since) for n, since, _ in windows], bandwidth.out, more)
        back = _moved([(n, until - starts[step + 1]) for n, _, until in windows], bandwidth.back, more)
        least = min(least, starts[-1] + wait + _recomputed(again, excess - min(out, back)))
    return least


def _window(tensor, step, starts):
    """Between which moments a tensor lies idle around a step; None if it does not, or cannot leave."""
    uses = [(starts[used[0]], starts[used[-1] + 1], used) for used in tensor.uses]
    for before, after in pairwise(uses):
        if before[2][-1] < step < after[2][0]:
            return before[1], after[0]
    if not tensor.is_persistent or not uses:
        return None
    if step < uses[0][2][0]:
        return uses[-1][1] - starts[-1], uses[0][0]
    return (uses[-1][1], uses[0][0] + starts[-1]) if step > uses[-1][2][-1] else None


def _moved(deadlines, rate, wait):
    moved = 0.0
    for n_bytes, seconds in sorted(deadlines, key=lambda each: each[1]):
        moved = min(moved + n_bytes, max(moved, rate * (seconds + wait)))
    return moved


def _recomputed(again, n_bytes):
    seconds = 0.0
    for cost, length in again:
        part = min(length, max(0.0, n_bytes))
        seconds, n_bytes = seconds + cost * part, n_bytes - part
    return seconds if n_bytes <= 1 else float("inf")
