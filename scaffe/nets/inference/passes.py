"""Runs a net forward in the net's place, convolutions with what follows them in one pass."""

from __future__ import annotations

from collections.abc import Collection

from scaffe.layers.base.layer import TEST
from scaffe.layers.reshaping.split_tile import Split
from scaffe.nets.blob_memory import memory_owners
from scaffe.nets.inference.arena import Activations
from scaffe.nets.inference.groups import find_groups
from scaffe.nets.inference.known import Known
from scaffe.nets.inference.ready import ReadyLayers
from scaffe.nets.inference.run import Run
from scaffe.nets.inference.shares import Shares, shares_of
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


class Inference:
    """The forward pass of a net that is not trained now.

    Batch norm with running averages, Scale and Bias are folded into the weights of the convolution before them (in
    float64); a sum with an earlier blob and a ReLU run in its pass. Weights are folded and laid out for the kernel when
    they may have changed (``Blob.writes``), and else kept. The blobs between layers of one pass are not written; the
    others, but for outputs, are written over when nobody reads them any more.

    Args:
        net: the net; of the phase TEST, on the CPU, or nothing of this is done.
        shown: names of blobs that are to hold what they do in Caffe, besides the net's outputs.
        in_shares: whether layers that compute each image by itself may run for some images at a time, on threads.
            If not, weights are laid out by ``lay_out`` alone.
        lead: passes of a net of the same layers and shapes, on the same parameters, whose laid-out weights these use.
        plain: indices of layers that run as they do in ``Net.forward``.

    Attributes:
        hidden: names of the blobs that after a pass do not hold what they do in Caffe.
        skipped: those of them that do not after the last pass.
        folded: whether the last pass ran any layers otherwise than ``Net.forward`` does.
    """

    _activations: Activations | None = None
    _shares: Shares | None = None
    _ran_shares = False  # in the last pass

    def __init__(self, net: Net, shown: Collection[str] = (), in_shares: bool = True,
                 lead: Inference | None = None, plain: Collection[int] = ()) -> None:
        self._net, self._plain = net, plain
        self._runs: dict[int, Run] = {}
        if net.context.phase == TEST and net.context.kernels.PLACE == "host":
            bound = next((i for i, node in enumerate(net.nodes) if node.layer.reshape_always), len(net.nodes))
            found = find_groups(net.nodes[:bound], shown, plain)
            self._runs = {group.members[0]: Run(net.nodes, group, in_shares) for group in found}
            self._runs = {head: run for head, run in self._runs.items() if run.plan is not None}
            if lead is not None:
                for head, run in self._runs.items():
                    run.adopt(lead._runs[head])
            if in_shares and self._runs:
                groups = [run.group.members for run in self._runs.values()]
                self._shares = shares_of(net, shown, groups, _whole, plain)
        heads = {i: head for head, run in self._runs.items() for i in run.group.members}
        self._covered = heads.keys()
        self._known = Known(net)
        self._ready = ReadyLayers(net.nodes, self._runs, self._covered, self._fused,
                                  () if self._shares is None else [self._shares.first], plain)
        self.skipped: set[str] = set()
        self.folded = False
        self.hidden = {name for run in self._runs.values() for name in run.group.hidden}
        if self._runs:
            ends, inner = (self._shares.ends, self._shares.inner) if self._shares is not None else ([], set())
            self._activations = Activations(net, [run.group for run in self._runs.values()], {*shown, *ends})
            self.hidden |= self._activations.names | inner
            self.hidden = _unwritten(net, self.hidden)

    def forward(self) -> float:
        """Run the net forward. Returns the loss, as ``Net.forward`` does.

        Raises:
            UserError: a layer's error, with the layer's name.
        """
        net, loss, index = self._net, 0.0, 0
        is_watched = net.unfused or net.before_forward or net.after_forward or net.tiers
        self.skipped = set() if is_watched else self.hidden
        self.folded = bool(self._runs) and not is_watched
        if is_watched:
            self.release()
            return float(net.forward())
        if self._activations is not None:
            self._activations.bind()
        is_known, done = self._known.begin(), frozenset[int]()
        self._ready.begin(is_known)
        while index < len(net.nodes):
            if self._shares is not None and index == self._shares.first:
                done, is_known = self._run_shares(self._shares, is_known)
            ready = self._ready.at(index, done)
            if ready is not None:
                ready.run()
                index = ready.stop
            elif index in done:
                index += 1
            elif index in self._covered:
                if index in self._runs:
                    self._runs[index](is_known)
                index += 1
            elif isinstance(net.nodes[index].layer, Split) and not any(net.nodes[index].loss_weights):
                self._split(net.nodes[index])
                index += 1
            else:
                loss, index = net.forward_once(index, self._end(index), loss)
        self._known.end()
        return float(loss)

    def lay_out(self) -> None:
        """Lay out weights that may have changed."""
        for run in self._runs.values():
            run.lay_out()

    def release(self) -> None:
        """Let all blobs have memory of their own, for passes of another kind, until the next ``forward``."""
        if self._activations is not None:
            self._activations.release()

    def _run_shares(self, shares: Shares, is_known: bool) -> tuple[frozenset[int], bool]:
        """Run the layers that may run in shares, if that pays. Returns which ran, and whether the others know all."""
        workers = self._net.context.kernels.workers()
        in_shares = shares.suits(workers)
        if in_shares != self._ran_shares:
            is_known = False
            self._ready.forget()
        self._ran_shares = in_shares
        if workers is None or not in_shares:
            return frozenset(), is_known
        shares.forward(workers, is_known)
        return shares.members, is_known

    @staticmethod
    def _split(node: Node) -> None:
        """Run a Split, of which nets have many, without what others need around their pass."""
        with node.named():
            node.reshape()
            node.layer.forward(node.bottoms, node.tops)

    def _fused(self, index: int) -> range:
        """The layers that run in one pass with layer ``index``, which is in no group."""
        return self._net.fused(index, self._end(index))

    def _end(self, index: int) -> int:
        """The last layer that may run with layer ``index``."""
        last = index + self._net.nodes[index].n_fused
        return next((i - 1 for i in range(index + 1, last + 1) if i in self._covered), last)


def _unwritten(net: Net, names: Collection[str]) -> set[str]:
    """Those of the names of blobs that have their memory from none of the others."""
    owners = memory_owners(net, "shares_data")
    written = {id(owners[id(blob)]) for name, blob in net.blobs.items() if name not in names}
    return {name for name in names if id(owners[id(net.blobs[name])]) not in written}


def _whole(net: Net, shown: Collection[str], lead: Inference | None) -> Inference:
    """What runs a net that is itself for a share of the images."""
    return Inference(net, shown, in_shares=False, lead=lead)
