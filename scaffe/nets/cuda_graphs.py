"""Runs a net's passes as CUDA graphs: stretches of layers are recorded once, then launched with one call each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from scaffe.layers.base.layer import Layer
from scaffe.layers.kernels.backend import is_device
from scaffe.log import warning
from scaffe.nets.net import Net, Tier

WARM_UP = 2  # passes that run layer by layer first: plans are built, memory is taken


def stretches(can_record: Sequence[bool], hook_points: Collection[int]) -> list[tuple[int, int, bool]]:
    """Divide the layers into stretches, all of whose layers can be recorded, or none; each hook point begins a stretch.
    Returns (first layer, last layer, whether to record it) for each stretch, in order."""
    runs: list[tuple[int, int, bool]] = []
    for index, can in enumerate(can_record):
        if runs and runs[-1][2] == can and index not in hook_points:
            runs[-1] = runs[-1][0], index, can
        else:
            runs.append((index, index, can))
    return runs


class Recorded:
    """Runs the net's passes for a strategy, in the net's place. The net's hooks are called around each stretch, and so
    are its tiers where it is recorded; what these compute again is recorded with the layers.

    Layers run one by one for the first WARM_UP passes, and again after the input shapes have changed. ``hook_points``:
    indices of the layers at which somebody acts: before their forward, after their backward."""

    def __init__(self, net: Net, hook_points: Collection[int], backward: bool = True) -> None:
        self._net, self._has_backward = net, backward
        self._heads = {index - net.nodes[index].fused_offset for index in hook_points}  # no cut between fused layers
        self._n_passes = 0
        self.cut()

    def cut(self, forward: Collection[int] = (), backward: Collection[int] = ()) -> None:
        """Forget all recordings, and cut passes at these layers too, where the net's tiers act, from now on.

        Args:
            forward, backward: indices of layers at which stretches of either way begin; none that would divide a pass.
        """
        can = [can_record(node.layer) for node in self._net.nodes]
        self._forward_runs = stretches(can, {*self._heads, *forward})
        self._backward_runs = stretches(can, {*self._heads, *backward})
        self._forget()

    def _forget(self) -> None:
        self._shapes = self._input_shapes()
        self._recordings: dict[tuple[str, int], Any] = {}

    def forward(self) -> Any:
        """Run the net's forward. Returns the loss: a number on the device, which ``float`` waits for."""
        if self._input_shapes() != self._shapes:
            self._n_passes = 0
            self._forget()
        loss: Any = 0.0
        way = "forward writing weights" if self._net.params.lays_out else "forward"
        for first, last, can in self._forward_runs:
            bare, whole = partial(self._bare, "forward", first, last), partial(self._net.forward, first, last)
            part = self._run(way, range(first, last + 1), can, bare, whole)
            loss = loss + part  # a new number: a recording's own is written again
        if not self._has_backward:
            self._n_passes += 1
        return loss

    def backward(self) -> None:
        for first, last, can in reversed(self._backward_runs):
            down = range(last, first - 1, -1)
            self._call(self._net.before_backward, down)
            way = "backward" if self._writes(first, last) else "backward adding"
            bare = partial(self._bare, "backward", last, first)
            self._run(way, down, can, bare, bare)
            self._claim(first, last)
            self._call(self._net.after_backward, down)
        self._n_passes += 1

    def _run(self, way: str, layers: range, can: bool, bare: Callable[[], Any], whole: Callable[[], Any]) -> Any:
        """Run a stretch: layer by layer with ``whole``, or as ``bare`` was recorded, forward between its hooks."""
        if not can or self._n_passes < WARM_UP or self._net.shows_layers:
            return whole()
        self._net.context.draws.catch_up()
        key = way, min(layers)
        if key not in self._recordings:
            self._recordings[key] = self._record(way, layers, bare, whole)
        names = [self._net.nodes[layer].name for layer in (layers[0], layers[-1])]
        with self._net.span(f"{way} {' to '.join(names)}"):
            return self._recordings[key]()

    def _record(self, way: str, layers: range, bare: Callable[[], Any], whole: Callable[[], Any]) -> Callable[[], Any]:
        kernels, tiers = self._net.context.kernels, self._net.tiers
        if not is_device(kernels):
            return whole
        self._net.tiers = [InRecording(tier) for tier in tiers]
        try:
            return partial(self._between_moves, kernels.record(bare), layers)
        except Exception as error:  # CUDA's, and what a layer raises when its look at the device is refused
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            warning(f"{way} from layer {self._net.nodes[min(layers)].name!r} cannot be recorded ({reason}): it runs "
                    "layer by layer")
            return whole
        finally:
            self._net.tiers = tiers

    def _between_moves(self, recorded: Callable[[], Any], layers: range) -> Any:
        """Run a stretch with what its tiers do before it and after (``memory.run.limited_net.cuts`` says what
        that may be), and forward with its hooks."""
        is_forward = layers.step > 0
        steps = [*layers] if is_forward else [step for index in layers for step in self._net.steps.backward(index)]
        ahead = steps if is_forward else self._net.steps.backward(layers[0])
        for tier in self._net.tiers:
            for step in ahead:
                tier.before(step)
        if is_forward:
            self._call(self._net.before_forward, layers)  # who writes parameters finds them where they are to be
        result = recorded()
        if is_forward:
            self._call(self._net.after_forward, layers)
        else:
            self._claim(min(layers), max(layers))  # before a tier updates them
        for tier in self._net.tiers:
            for step in steps:
                if step not in ahead:
                    tier.before(step)
                tier.after(step)
        return result

    def _bare(self, way: str, start: int, end: int) -> Any:
        """Run one way without its hooks, which are called around the stretch."""
        net, names = self._net, (f"before_{way}", f"after_{way}")
        hooks = {name: getattr(net, name) for name in names}
        try:
            vars(net).update({name: [] for name in names})
            return getattr(net, way)(start, end)
        finally:
            vars(net).update(hooks)

    def _writes(self, first: int, last: int) -> bool:
        """Whether backward overwrites gradients, as the first pass of an iteration does, rather than adding to them."""
        nodes = [node for node in self._net.nodes[first : last + 1] if node.needs_backward]
        return any(blob.is_cleared for node in nodes for blob in node.layer.blobs)  # frozen layers' stay cleared

    def _claim(self, first: int, last: int) -> None:
        """Mark as written the gradients that a replayed backward wrote, since the layers' own code did not run. Those
        that come by blocks of rows others compute."""
        for index in range(first, last + 1):
            node = self._net.nodes[index]
            if node.needs_backward and index not in self._net.steps.behind:
                for blob in node.layer.blobs:
                    blob.claim_diff()

    @staticmethod
    def _call(hooks: Sequence[Callable[[int], None]], indices: range) -> None:
        for hook in hooks:
            for index in indices:
                hook(index)

    def _input_shapes(self) -> list[Any]:
        return [top.shape for node in self._net.nodes if node.is_source for top in node.tops]


class InRecording(Tier):
    """A net's tier while a stretch is recorded: it has blobs where each step has them, computes again, measures, and
    moves nothing."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier

    def before(self, step: int) -> None:
        self._tier.place(step)

    def recompute(self, step: int) -> None:
        self._tier.recompute(step)

    def after(self, step: int) -> None:
        self._tier.ended(step)


def can_record(layer: Layer) -> bool:
    """Whether a layer does the same in every pass, entirely on the device."""
    return layer.recordable and not layer.reshape_always
