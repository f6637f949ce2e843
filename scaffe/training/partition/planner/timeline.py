"""Predicts when an iteration ends: computations and messages, each in its order; pure.

A cost takes nothing to be hidden behind anything. Here a rank's main thread and its port are followed through one
iteration of training, whose parameters have yet to come from the replicas that updated them (``sc-rs``), as the layers
of ``partition/layers`` go about it between nodes. What the next layer waits for goes before sums of gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from scaffe.training.partition.planner.cost_model import (
    Ranks,
    compute_seconds,
    exchange_cost,
    gradient_sum_cost,
    redistribution_cost,
    replica_sum_cost,
    update_seconds,
)
from scaffe.training.partition.planner.search import Plan
from scaffe.training.partition.planner.shapes import LayerShape
from scaffe.training.partition.sharding import BY_BANDS, BY_CHANNELS, INPUTS, OUTPUTS, ROWS, sharding_of

MOST_CHUNKS = 4
"""In which the outputs of an InnerProduct split by inputs are computed, each exchanged by itself."""


@dataclass(frozen=True)
class Step:
    """What a layer takes, in seconds.

    Attributes:
        passes: of its products: forward, its bottoms' gradient, its parameters' gradient; 0 where it has none.
        redistributions: of its bottoms, forward and backward.
        inside: of what it exchanges itself, forward and backward.
        independent: the part of forward that needs nothing of what is moved or exchanged.
        chunks: in which it is computed, each exchanged by itself.
        given: of its parameters' way from the replicas.
        summed: of its gradients' sums.
        is_early: whether its bottoms' gradients set out before its parameters' are computed.
    """

    passes: tuple[float, float, float]
    redistributions: tuple[float, float]
    inside: tuple[float, float]
    independent: float = 0.0
    chunks: int = 1
    given: float = 0.0
    summed: float = 0.0
    update: float = 0.0
    is_early: bool = True


@dataclass
class Port:
    """A rank's network port: urgent messages one after another, the others in the time between.

    Attributes:
        now: up to which the others have been followed.
        busy: until when it is with urgent ones.
        queue: the others: whose, and seconds left.
    """

    now: float = 0.0
    busy: float = 0.0
    queue: list[tuple[str, float]] = field(default_factory=list)

    def urgent(self, at: float, seconds: float) -> float:
        """Send from a time on. Returns when that is done; other messages wait meanwhile."""
        self._advance(at)
        self.busy = max(at, self.busy) + seconds
        return self.busy

    def post(self, at: float, whose: str, seconds: float) -> None:
        self._advance(at)
        self.queue.append((whose, seconds))

    def done(self, at: float, whose: str) -> float:
        """When posted messages have arrived, for a rank that waits from ``at`` on."""
        self._advance(at)
        if all(name != whose for name, _ in self.queue):
            return at
        last = max(i for i, (name, _) in enumerate(self.queue) if name == whose)
        self.now = max(self.now, self.busy) + sum(left for _, left in self.queue[:last + 1])
        del self.queue[:last + 1]
        return max(at, self.now)

    def _advance(self, to: float) -> None:
        start = max(self.now, self.busy)
        while self.queue and start < to:
            name, left = self.queue.pop(0)
            if start + left > to:
                self.queue.insert(0, (name, start + left - to))
                left = to - start
            start += left
        self.now = max(self.now, to)


def iteration_seconds(layers: Sequence[LayerShape], plan: Plan, ranks: Ranks, is_still: bool = False) -> float:
    """Seconds of an iteration of a plan. ``is_still``: whether layers compute nothing while what lies between them
    travels."""
    steps, port, now = list(_steps(layers, plan, ranks)), Port(), 0.0
    if is_still:
        steps = [replace(step, independent=0.0, chunks=1, is_early=False) for step in steps]
    names = [layer.name for layer in layers]
    for name, step in zip(names, steps, strict=True):
        if step.given:
            port.post(0.0, name, step.given)
    for name, step in zip(names, steps, strict=True):
        now = _forward(step, port, port.done(now, name) if step.given else now)
    for name, step in zip(names[::-1], steps[::-1], strict=True):
        now = _backward(step, port, now)
        if step.summed:
            port.post(now, name, step.summed)
    for name in names:
        now = port.done(now, name)
    return now + sum(step.update for step in steps)


def _forward(step: Step, port: Port, now: float) -> float:
    """When a layer's forward ends that begins now."""
    if step.chunks > 1:
        now = port.urgent(now, step.redistributions[0]) if step.redistributions[0] else now
        ends = [port.urgent(now + (i + 1) * step.passes[0] / step.chunks, step.inside[0] / step.chunks)
                for i in range(step.chunks)]
        return ends[-1]
    exchanged = sum((step.redistributions[0], step.inside[0]))
    came = port.urgent(now, exchanged) if exchanged else now
    return max(now + step.independent, came) + step.passes[0] - step.independent


def _backward(step: Step, port: Port, now: float) -> float:
    """When a layer's backward ends, and its bottoms' gradients are where the layer below needs them."""
    _, data, weights = step.passes
    if step.chunks > 1:
        come = [port.urgent(now, step.inside[1] / step.chunks) for _ in range(step.chunks)]
        for at in come:
            now = max(now, at) + data / step.chunks
        sent = step.redistributions[1]
    else:
        now, sent = now + data, sum((step.redistributions[1], step.inside[1]))
    if not step.is_early:
        now, weights = now + weights, 0.0
    back = port.urgent(now, sent) if sent else now
    return max(now + weights, back)


def _steps(layers: Sequence[LayerShape], plan: Plan, ranks: Ranks) -> Iterator[Step]:
    lying: dict[str, str] = {}
    for layer in layers:
        kind = plan.shardings[layer.name]
        sharding, lies = sharding_of(layer.type, kind), [lying.pop(name, ROWS) for name in layer.bottoms]
        there, both = (sum(redistribution_cost(how, sharding.need(i), layer.widths[i], back and layer.wants_gradient[i],
                                         ranks).seconds for i, how in enumerate(lies)) for back in (False, True))
        yield _step(layer, kind, ranks, (there, both - there), lies)
        lying.update(dict.fromkeys(layer.tops, sharding.gives))


def _step(layer: LayerShape, kind: str, ranks: Ranks, moved: tuple[float, float], lies: Sequence[str]) -> Step:
    n_passes = 1 + bool(layer.n_parameters) + any(layer.wants_gradient)
    each = compute_seconds(layer, kind, ranks) / n_passes
    passes = each, each * any(layer.wants_gradient), each * bool(layer.n_parameters)
    inside = exchange_cost(layer, kind, ranks, False).seconds, exchange_cost(layer, kind, ranks, True).seconds
    replicas = replica_sum_cost(layer, kind, ranks).seconds
    is_product = layer.type == "InnerProduct"
    return Step(passes, moved, inside, each * _independent(layer, kind, ranks, lies),
                MOST_CHUNKS if is_product and kind == INPUTS and ranks.n_partitions > 1 else 1, replicas / 2,
                gradient_sum_cost(layer, kind, ranks).seconds + replicas / 2, update_seconds(layer, kind, ranks))


def _independent(layer: LayerShape, kind: str, ranks: Ranks, lies: Sequence[str]) -> float:
    k = ranks.n_partitions
    if layer.type == "InnerProduct" and kind == OUTPUTS and lies[0] == ROWS:
        return 1 / k  # own images
    halo = layer.shares[kind].halo if kind in (BY_BANDS, BY_CHANNELS) and kind in layer.shares else 0
    if not halo:
        return 0.0
    inside = 1 - halo * k / layer.widths[0]
    return inside if inside >= 0.5 and layer.type != "Pooling" else 0.0
