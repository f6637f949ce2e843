"""Passes of a net whose blobs a script may read at any time: a blob that a pass skipped is computed when it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TEST
from scaffe.layers.python import UserBlob
from scaffe.nets.fusion import unfuse_backward
from scaffe.nets.inference.lazy_blobs import LazyBlobs, Repeatable
from scaffe.nets.inference.passes import Inference
from scaffe.nets.net import Net
from scaffe.pycaffe.dlpack import memory_for

MANY_READS = 2  # passes after which a blob was read, from which on every pass writes it
PARTIAL = ""  # counts partial passes in place of a blob: no blob has this name


class WatchedBlob(UserBlob):
    """A blob in host memory that calls back before its data are read or written, and before it is reshaped."""

    def __init__(self, blob: Blob, before_read: Callable[[], Any], before_reshape: Callable[[], Any]) -> None:
        super().__init__(blob)
        self._before_read, self._before_reshape = before_read, before_reshape

    @property
    def data(self) -> np.ndarray:
        """The data, an array in Caffe's order that can be written to."""
        self._before_read()
        lent: np.ndarray = self._blob.writes.lend(self._blob.data)
        return lent

    def reshape(self, *dims: int) -> None:
        if dims != self._blob.shape:
            self._before_reshape()
            self._blob.writes.note()
        super().reshape(*dims)


class LazyPasses:
    """The forward and backward passes of one net, as a script sees them.

    A complete forward pass of a TEST net runs as ``Inference`` does, and skips blobs between fused layers. Reading such
    a blob computes it alone, from what the pass read, and changes nothing else. A blob is not skipped if it cannot be
    computed so (a layer before it has a state, or is a user's), if somebody holds its array, or if it was read after
    ``MANY_READS`` passes. A net that also runs backward, or that several times runs in part after a complete pass, runs
    as in training.
    """

    def __init__(self, net: Net) -> None:
        self._net, self._repeatable = net, Repeatable(net)
        owners = self._repeatable.owners
        self._mates = {name: [other for other, each in net.blobs.items() if owners[id(each)] is owners[id(blob)]]
                       for name, blob in net.blobs.items()}  # by name, the names of all blobs that share its memory
        has_copies = net.context.dtype != net.context.param_dtype  # a read of a copy is not noticed
        self._is_plain = (has_copies or net.context.phase != TEST or net.parts is not None
                          or self._repeatable.writes_sources)
        self._others = () if self._is_plain else {*range(len(net.nodes))}.difference(self._repeatable.nodes)
        self._heads = [node for node in net.nodes if node.layer.n_fused_back]
        self._read_fused = {mate for node in self._heads for name in node.bottom_names for mate in self._mates[name]}
        self._written = [blob for node in net.nodes if node.layer.writes_params for blob in node.layer.blobs]
        self._shown: set[str] = set(self._repeatable.kept)
        self._n_reads: Counter[str] = Counter()
        self.is_solvers = False  # a solver may have recorded the addresses of its net's blobs
        self._inputs: dict[str, Any] = {}  # those in others' memory, lent for as long as they are
        self._fold()

    def forward(self, start: int, end: int, wanted: Collection[str]) -> float:
        """Run layers ``start`` to ``end`` forward; the caller then reads the blobs ``wanted``. Returns the loss."""
        if self._is_plain or start > 0 or end < len(self._net.nodes) - 1:
            self._n_reads[PARTIAL] += self._lazy.is_open
            self._is_plain |= self._n_reads[PARTIAL] >= MANY_READS
            self.compute_skipped()
            self._note_params()
            loss = float(self._net.forward(start, end))
            self._unfuse_held()
            return loss
        self._lazy.drop()
        self._note_params()
        shown = {name for name in self._inference.hidden if self._net.blobs[name].writes.is_lent or name in wanted
                 or self._n_reads[name] >= MANY_READS}
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

    def before_read(self, name: str) -> None:
        """Compute a skipped blob: a script is about to read it."""
        if name in self._read_fused:
            unfuse_backward(self._heads)
        if self._lazy.holds(name):
            self._inference.release()
            self._lazy.compute(name)
            self._n_reads.update(self._mates[name])

    def before_parameter_read(self) -> None:
        """Prepare for a script that is about to read, or write, a parameter."""
        unfuse_backward(self._heads)

    def before_reshape(self, name: str) -> None:
        """Compute a skipped blob: a script is about to give it another shape."""
        self._lazy.before_reshape()
        self.before_read(name)

    def compute_skipped(self) -> None:
        """Compute all blobs that the last pass skipped, before layers run one by one."""
        self._inference.release()
        self._lazy.compute_all()

    def reshape(self) -> None:
        """Give all blobs the shapes that follow from the inputs'."""
        self._lazy.before_reshape()
        self._inference.release()
        self._net.reshape()

    def share(self, name: str, array: Any, net: Net) -> None:
        """Let an input's data be the memory of an array of any library. Raises UserError."""
        if self.is_solvers:
            raise UserError("the inputs of a solver's net keep their memory; write to blob.data")
        if name not in net.input_names:
            raise UserError(f"the net has no input {name!r}; it has: {', '.join(net.input_names)}")
        blob = net.blobs[name]
        memory = memory_for(blob, array, net.context.kernels.xp)
        self.compute_skipped()
        blob.writes.note()
        blob.bind_data(memory)
        self._inputs[name] = blob.writes.lend(blob.data, net.context.kernels.xp.asarray)
        self.reshape()

    def _note_params(self) -> None:
        """Mark the parameters that layers may write in the next pass as changed, since other nets may share them."""
        for blob in self._written:
            blob.writes.note()

    def _unfuse_held(self) -> None:
        """Let layers keep what their backward needs of blobs whose arrays a script holds, and may write at any time."""
        if any(self._net.blobs[name].writes.is_lent for name in self._read_fused):
            unfuse_backward(self._heads)

    def _fold(self) -> None:
        """Make passes that skip the blobs that no script is known to read."""
        self._inference = Inference(self._net, self._shown, plain=self._others)
        self._lazy = LazyBlobs(self._net, self._repeatable, self._inference.hidden)
