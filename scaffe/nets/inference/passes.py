"""The forward pass of a net that is not being trained: fused convolutions, prepared calls, per-image parallelism."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import TEST
from scaffe.layers.base.writes import Writes
from scaffe.layers.reshaping.copies import Split
from scaffe.nets.blob_memory import memory_owners
from scaffe.nets.inference.arena import Activations
from scaffe.nets.inference.fused_convolution import FusedConvolution, find_groups
from scaffe.nets.inference.per_image_parallelism import PerImageParallelism, parallelize_per_image
from scaffe.nets.inference.prepared_calls import PreparedLayers
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


class ChangeDetector:
    """Compares a net's shapes and parameters with those of its last pass. ``net``: the net. If one of its layers may
    change shapes or parameters within a pass, as a user's may, every pass counts as changed."""

    def __init__(self, net: Net) -> None:
        nodes = net.nodes
        self._can_detect = not any(node.layer.host_only or node.layer.reshape_always for node in nodes)
        self._parameters = _distinct([blob for node in nodes for blob in node.layer.blobs])
        self._activations = _distinct([blob for node in nodes for blob in (*node.bottoms, *node.tops)])
        self._shapes: list[Shape] | None = None  # at the end of the last complete pass
        self._writes: list[Writes] = []  # of the parameters, at the beginning of that pass
        self._counts: list[int] = []

    def begin(self) -> bool:
        writes = [blob.writes for blob in self._parameters]
        counts = [each.n for each in writes]
        is_unchanged = (self._can_detect and self._shapes == [blob.shape for blob in self._activations]
                    and writes == self._writes and counts == self._counts
                    and not any(each.is_lent for each in writes))
        self._shapes, self._writes, self._counts = None, writes, counts
        return is_unchanged

    def end(self) -> None:
        self._shapes = [blob.shape for blob in self._activations]


def _distinct(blobs: Sequence[Blob]) -> list[Blob]:
    return list({id(blob): blob for blob in blobs}.values())


class Inference:
    """The forward pass of a net that is not being trained.

    It folds batch norm with running averages, Scale and Bias into the weights of the convolution before them (in
    float64), and computes a sum with an earlier blob and a ReLU in the convolution's pass. Weights are folded and laid
    out again only when they may have changed (``Blob.writes``). Blobs between fused layers are not written; the
    others, except outputs, share memory that is reused once their last reader has run.

    Args:
        net: the net. Only nets of phase TEST on the CPU are optimized; others run as ``Net.forward`` does.
        shown: names of blobs that must be written, with Caffe's values, besides the net's outputs.
        per_image: whether threads may run the first layers each for some images (``PerImageParallelism``). If not,
            weights are laid out by ``lay_out`` alone.
        lead: passes of a net of the same layers and shapes, on the same parameters, whose laid-out weights to use.
        plain: indices of layers that run as they do in ``Net.forward``.

    Attributes:
        hidden: names of the blobs that a pass does not leave with Caffe's values.
        skipped: those of them that the last pass did not write.
        folded: whether the last pass ran any layer in another way than ``Net.forward`` does.
    """

    _activations: Activations | None = None
    _per_image: PerImageParallelism | None = None
    _ran_per_image = False  # in the last pass

    def __init__(self, net: Net, shown: Collection[str] = (), per_image: bool = True,
                 lead: Inference | None = None, plain: Collection[int] = ()) -> None:
        self._net, self._plain = net, plain
        self._convolutions: dict[int, FusedConvolution] = {}
        if net.context.phase == TEST and net.context.kernels.PLACE == "host":
            end = next((i for i, node in enumerate(net.nodes) if node.layer.reshape_always), len(net.nodes))
            found = find_groups(net.nodes[:end], shown, plain)
            self._convolutions = {group.members[0]: FusedConvolution(net.nodes, group, per_image) for group in found}
            self._convolutions = {head: run for head, run in self._convolutions.items() if run.plan is not None}
            if lead is not None:
                for head, run in self._convolutions.items():
                    run.share_weights(lead._convolutions[head])
            if per_image and self._convolutions:
                groups = [run.group.members for run in self._convolutions.values()]
                self._per_image = parallelize_per_image(net, shown, groups, _whole, plain)
        heads = {i: head for head, run in self._convolutions.items() for i in run.group.members}
        self._covered = heads.keys()
        self._changes = ChangeDetector(net)
        self._prepared = PreparedLayers(net.nodes, self._convolutions, self._covered, self._fused,
                                  () if self._per_image is None else [self._per_image.first], plain)
        self.skipped: set[str] = set()
        self.folded = False
        self.hidden = {name for run in self._convolutions.values() for name in run.group.hidden}
        if self._convolutions:
            ends, inner = (self._per_image.ends, self._per_image.inner) if self._per_image is not None else ([], set())
            self._activations = Activations(net, [run.group for run in self._convolutions.values()], {*shown, *ends})
            self.hidden |= self._activations.names | inner
            owners = memory_owners(net, "shares_data")
            written = {id(owners[id(blob)]) for name, blob in net.blobs.items() if name not in self.hidden}
            self.hidden = {name for name in self.hidden if id(owners[id(net.blobs[name])]) not in written}

    def forward(self) -> float:
        """Run the net forward. Returns the loss, as ``Net.forward`` does; raises UserError as that does."""
        net, loss, index = self._net, 0.0, 0
        is_watched = net.unfused or net.before_forward or net.after_forward or net.tiers
        self.skipped = set() if is_watched else self.hidden
        self.folded = bool(self._convolutions) and not is_watched
        if is_watched:
            self.release()
            return float(net.forward())
        if self._activations is not None:
            self._activations.bind()
        is_unchanged, done = self._changes.begin(), frozenset[int]()
        self._prepared.begin(is_unchanged)
        while index < len(net.nodes):
            if self._per_image is not None and index == self._per_image.first:
                done, is_unchanged = self._run_per_image(self._per_image, is_unchanged)
            ready = self._prepared.at(index, done)
            if ready is not None:
                ready.run()
                index = ready.stop
            elif index in done:
                index += 1
            elif index in self._covered:
                if index in self._convolutions:
                    self._convolutions[index](is_unchanged)
                index += 1
            elif isinstance(net.nodes[index].layer, Split) and not any(net.nodes[index].loss_weights):
                self._split(net.nodes[index])
                index += 1
            else:
                loss, index = net.forward_once(index, self._end(index), loss)
        self._changes.end()
        return float(loss)

    def lay_out(self) -> None:
        for run in self._convolutions.values():
            run.lay_out()

    def release(self) -> None:
        if self._activations is not None:
            self._activations.release()

    def _run_per_image(self, shares: PerImageParallelism, is_unchanged: bool) -> tuple[frozenset[int], bool]:
        """Run the layers that may run in shares, if that pays. Returns which ran, and whether the others know all."""
        workers = self._net.context.kernels.workers()
        per_image = shares.pays_off(workers)
        if per_image != self._ran_per_image:
            is_unchanged = False
            self._prepared.forget()
        self._ran_per_image = per_image
        if workers is None or not per_image:
            return frozenset(), is_unchanged
        shares.forward(workers, is_unchanged)
        return shares.members, is_unchanged

    @staticmethod
    def _split(node: Node) -> None:
        """Run a Split layer alone: nets have many, and the general path costs more than the layer."""
        with node.named():
            node.reshape()
            node.layer.forward(node.bottoms, node.tops)

    def _fused(self, index: int) -> range:
        """The layers that run in one pass with layer ``index``, which is in no fused convolution."""
        return self._net.fused(index, self._end(index))

    def _end(self, index: int) -> int:
        last = index + self._net.nodes[index].n_fused
        return next((i - 1 for i in range(index + 1, last + 1) if i in self._covered), last)


def _whole(net: Net, shown: Collection[str], lead: Inference | None) -> Inference:
    """The passes of a net that computes part of a batch (see ``Make``)."""
    return Inference(net, shown, per_image=False, lead=lead)
