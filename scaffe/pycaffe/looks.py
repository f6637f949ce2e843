"""Forward passes of a net whose blobs a script may look at: blobs that a pass skips are computed when they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TEST
from scaffe.layers.python import UserBlob
from scaffe.nets.fusion import unfuse_backward
from scaffe.nets.inference.lazy_blobs import LazyBlobs, Repeatable
from scaffe.nets.inference.passes import Inference
from scaffe.nets.net import Net

OFTEN = 2  # looks, each after another pass, from which on every pass writes the blob
CUT = ""  # stands for all blobs: no blob has that name


class WatchedBlob(UserBlob):
    """A blob in host memory that says when somebody is about to look at its data, or to write to it.

    Args:
        blob: the blob.
        look: called before each access to the data.
        reshape: called before the blob takes another shape.
    """

    def __init__(self, blob: Blob, look: Callable[[], Any], reshape: Callable[[], Any]) -> None:
        super().__init__(blob)
        self._look, self._before_reshape = look, reshape

    @property
    def data(self) -> np.ndarray:
        """The data, an array in Caffe's order that can be written to."""
        self._look()
        return self._blob.writes.lend(self._blob.data)

    def reshape(self, *dims: int) -> None:
        """Take a new shape."""
        if dims != self._blob.shape:
            self._before_reshape()
            self._blob.writes.note()
        super().reshape(*dims)


class Passes:
    """The forward and backward passes of one net, as a script sees them.

    A whole forward pass of a TEST net runs as ``Inference`` does, and skips blobs between layers of one pass. A look at
    such a blob computes it alone, from what that pass read, and changes nothing else. Blobs that cannot be computed so,
    since a layer in front of them has a state or a user wrote it, those whose arrays somebody holds, and those that are
    looked at again and again, are not skipped. A net that also runs backward, or again and again in part behind a whole
    pass, runs as in training.
    """

    def __init__(self, net: Net) -> None:
        self._net, self._repeatable = net, Repeatable(net)
        owners = self._repeatable.owners
        self._mates = {name: [other for other, each in net.blobs.items() if owners[id(each)] is owners[id(blob)]]
                       for name, blob in net.blobs.items()}  # the names of all that share its memory
        has_copies = net.context.dtype != net.context.param_dtype  # a look at a copy is not noticed
        self._is_plain = (has_copies or net.context.phase != TEST or net.parts is not None
                          or self._repeatable.writes_sources)
        self._others = () if self._is_plain else {*range(len(net.nodes))}.difference(self._repeatable.nodes)
        self._heads = [node for node in net.nodes if node.layer.n_fused_back]
        self._read_fused = {mate for node in self._heads for name in node.bottom_names for mate in self._mates[name]}
        self._written = [blob for node in net.nodes if node.layer.writes_params for blob in node.layer.blobs]
        self._shown: set[str] = set(self._repeatable.kept)
        self._looks: Counter[str] = Counter()
        self._fold()

    def forward(self, start: int, end: int, wanted: Collection[str]) -> float:
        """Run layers ``start`` to ``end`` forward; the blobs ``wanted`` are looked at afterwards. Returns the loss."""
        if self._is_plain or start > 0 or end < len(self._net.nodes) - 1:
            self._looks[CUT] += self._lazy.is_open
            self._is_plain |= self._looks[CUT] >= OFTEN
            self.compute_skipped()
            self._note_params()
            loss = float(self._net.forward(start, end))
            self._unfuse_held()
            return loss
        self._lazy.drop()
        self._note_params()
        shown = {name for name in self._inference.hidden if self._net.blobs[name].writes.is_lent or name in wanted
                 or self._looks[name] >= OFTEN}
        if shown:
            self._shown |= {mate for name in shown for mate in self._mates[name]}
            self._inference.release()
            self._fold()
        try:
            loss = self._inference.forward()
        except BaseException:
            self._inference.release()
            raise
        if self._inference.folded:
            self._lazy.begin()
        self._unfuse_held()
        return loss

    def backward(self, start: int, end: int) -> None:
        """Run layers ``start`` down to ``end`` backward."""
        self.compute_skipped()
        self._note_params()
        self._is_plain = True
        unfuse_backward(self._heads)
        self._net.backward(start, end)

    def look(self, name: str) -> None:
        """Somebody is about to look at a blob: let it hold what it does in Caffe."""
        if name in self._read_fused:
            unfuse_backward(self._heads)
        if self._lazy.holds(name):
            self._inference.release()
            self._lazy.compute(name)
            self._looks.update(self._mates[name])

    def look_at_parameter(self) -> None:
        """Somebody is about to look at a parameter."""
        unfuse_backward(self._heads)

    def before_reshape(self, name: str) -> None:
        """Somebody is about to give a blob another shape."""
        self._lazy.before_reshape()
        self.look(name)

    def compute_skipped(self) -> None:
        """Compute what the last pass has skipped, before layers run by themselves."""
        self._inference.release()
        self._lazy.compute_all()

    def reshape(self) -> None:
        """Give all blobs the shapes that follow from the inputs'."""
        self._lazy.before_reshape()
        self._inference.release()
        self._net.reshape()

    def _note_params(self) -> None:
        """Mark the parameters that layers may write in the next pass as changed: other nets may share them."""
        for blob in self._written:
            blob.writes.note()

    def _unfuse_held(self) -> None:
        """Let layers keep what their backward needs of blobs that somebody may write at any time."""
        if any(self._net.blobs[name].writes.is_lent for name in self._read_fused):
            unfuse_backward(self._heads)

    def _fold(self) -> None:
        """Passes that skip what nobody is known to look at."""
        self._inference = Inference(self._net, self._shown, plain=self._others)
        self._lazy = LazyBlobs(self._net, self._repeatable, self._inference.hidden)
