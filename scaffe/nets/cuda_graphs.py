"""A net's passes as recordings (CUDA graphs): stretches of layers recorded once, launched with one call each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from scaffe.layers.base.layer import Layer
from scaffe.layers.kernels.backend import is_device
from scaffe.log import warning
from scaffe.nets.net import Net

WARM_UP = 2  # passes that run layer by layer first: plans are built, memory is taken


def stretches(can_record: Sequence[bool], seams: Collection[int]) -> list[tuple[int, int, bool]]:
    """(first, last, whether to record) of runs of layers that are alike, with a cut ahead of every seam."""
    runs: list[tuple[int, int, bool]] = []
    for index, can in enumerate(can_record):
        if runs and runs[-1][2] == can and index not in seams:
            runs[-1] = runs[-1][0], index, can
        else:
            runs.append((index, index, can))
    return runs


class Recorded:
    """Stands for the net where a strategy runs its passes; the net's own hooks are called around each stretch.

    Args:
        net: the training net.
        seams: layers at which somebody acts: before their forward, after their backward.
        several_passes: whether gradients of several passes add up, which is not recorded.
    """

    def __init__(self, net: Net, seams: Collection[int], several_passes: bool = False) -> None:
        self._net, self._several = net, several_passes
        heads = {index - net.nodes[index].fused_offset for index in seams}  # no cut between fused layers
        self._runs = stretches([can_record(node.layer) for node in net.nodes], heads)
        self._start()

    def _start(self) -> None:
        self._shapes = self._input_shapes()
        self._n_passes = 0
        self._recordings: dict[tuple[str, int], Any] = {}

    def forward(self) -> Any:
        """The net's forward. Returns the loss."""
        if self._input_shapes() != self._shapes:
            self._start()
        loss: Any = 0.0
        for first, last, can in self._runs:
            self._call(self._net.before_forward, range(first, last + 1))
            part = self._run("forward", first, can, partial(self._bare_forward, first, last))
            self._call(self._net.after_forward, range(first, last + 1))
            loss = loss + part  # a new number: a recording's own is written again
        return loss

    def backward(self) -> None:
        """The net's backward."""
        for first, last, can in reversed(self._runs):
            down = range(last, first - 1, -1)
            self._call(self._net.before_backward, down)
            self._run("backward", first, can and not self._several, partial(self._bare_backward, last, first))
            self._claim(first, last)
            self._call(self._net.after_backward, down)
        self._n_passes += 1

    # -- parts ---------------------------------------------------------------------------------------------
    def _run(self, way: str, first: int, can: bool, run: Callable[[], Any]) -> Any:
        if not can or self._n_passes < WARM_UP:
            return run()
        self._net.context.draws.catch_up()
        key = way, first
        if key not in self._recordings:
            self._recordings[key] = self._record(way, first, run)
        return self._recordings[key]()

    def _record(self, way: str, first: int, run: Callable[[], Any]) -> Callable[[], Any]:
        try:
            kernels = self._net.context.kernels
            return kernels.record(run) if is_device(kernels) else run
        except Exception as error:  # CUDA's, and what a layer raises when its look at the device is refused
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            warning(f"{way} from layer {self._net.nodes[first].name!r} cannot be recorded ({reason}): it runs layer by "
                    "layer")
            return run

    def _bare_forward(self, first: int, last: int) -> Any:
        """Without hooks: they are called around the stretch."""
        net = self._net
        hooks, net.before_forward, net.after_forward = (net.before_forward, net.after_forward), [], []
        try:
            return net.forward(first, last)
        finally:
            net.before_forward, net.after_forward = hooks

    def _bare_backward(self, first: int, last: int) -> None:
        net = self._net
        hooks, net.before_backward, net.after_backward = (net.before_backward, net.after_backward), [], []
        try:
            net.backward(first, last)
        finally:
            net.before_backward, net.after_backward = hooks

    def _claim(self, first: int, last: int) -> None:
        """What a replayed backward has written counts as written."""
        for node in self._net.nodes[first : last + 1]:
            if node.needs_backward:
                for blob in node.layer.blobs:
                    blob.claim_diff()

    @staticmethod
    def _call(hooks: Sequence[Callable[[int], None]], indices: range) -> None:
        for hook in hooks:
            for index in indices:
                hook(index)

    def _input_shapes(self) -> list[Any]:
        return [top.shape for node in self._net.nodes if node.is_source for top in node.tops]


def can_record(layer: Layer) -> bool:
    """Whether a layer does the same at every pass, all of it on the device."""
    return layer.recordable and not layer.reshape_always
