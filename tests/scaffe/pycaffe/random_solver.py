"""Random sequences of calls to a solver and to the nets that share its weights, beside plain gradient descent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import scaffe as caffe
from scaffe.nets.fusion import unfuse_backward
from scaffe.nets.net import Net
from tests.scaffe.pycaffe.random_calls import Calls, Pair, write

RATE, TEST_INTERVAL = 0.05, 2
SOLVER = f'''train_net: "{{path}}" test_net: "{{path}}" test_iter: 1 test_interval: {TEST_INTERVAL} base_lr: {RATE}
test_initialization: false lr_policy: "fixed"'''
LOSS = """
layer {{ name: "loss" type: "Reduction" bottom: "{}" top: "loss" loss_weight: 1
  reduction_param {{ axis: 1 operation: MEAN }} }}"""


class SolverCalls(Calls):
    """As ``Calls``, of the test net of a solver, a net of its own that shares the weights, and the training net.

    Every layer of the plain nets runs by itself; w ← w - rate · gradient. Arguments: as for ``Calls``.
    """

    def __init__(self, seed: int, folder: Path, precision: str = "fp32", is_mirrored: bool = False) -> None:
        super().__init__(seed, folder, precision, is_mirrored)
        self.numbers, self.calls = [0, 0, 0, 1, 1, 2], self.calls + [self.step] * 5
        self.n_steps, self.tolerance = 0, 5 * self.tolerance  # steps add up what is rounded otherwise

    def nets(self) -> list[tuple[caffe.Net, Net]]:
        """See Calls."""
        path = self.folder / "net.prototxt"
        path.write_text(self.net.text + LOSS.format(self.rng.choice(list(self.net.shapes))))
        (self.folder / "solver.prototxt").write_text(SOLVER.format(path=path))
        self.solver, plain = (caffe.get_solver(str(self.folder / "solver.prototxt")) for _ in range(2))
        self._plain = plain  # its nets live as long
        mine, others = caffe.Net(str(path), caffe.TEST), caffe.Net(str(path), caffe.TEST)
        self.solver.share_weights(mine)
        plain.share_weights(others)
        return [(self.solver.test_nets[0], plain.test_nets[0]._built), (mine, others._built),
                (self.solver.net, plain.net._built)]

    def share(self, pair: Pair) -> None:
        """Share the weights once more; whoever holds arrays of its parameters holds the same memory."""
        self.solver.share_weights(self.pairs[1].view)
        self.pairs[1].plain.share_trained_layers(self.pairs[2].plain)

    def step(self, pair: Pair) -> None:
        """Train, with the tests that fall into it."""
        n = self.rng.choice([1, 1, 2, 3])
        self.log.append(str(n))
        self.both(lambda: self.solver.step(n), lambda: [self._step_plain() for _ in range(n)])
        view, plain = self.pairs[2].view, self.pairs[2].plain
        fused = {top for node in plain.nodes if node.param.type == "BatchNorm" for top in node.top_names}
        for name in fused:  # a step's fused passes leave another diff between BatchNorm and Scale
            write(plain, plain.blobs[name], np.array(view.blobs[name].diff), "diff")

    def _step_plain(self) -> None:
        net = self.pairs[2].plain
        if self.n_steps and self.n_steps % TEST_INTERVAL == 0:
            self.forward_plain(self.pairs[0].plain)
        for node in net.nodes:
            for blob in node.layer.blobs:
                blob.diff[...] = 0
        self.forward_plain(net)
        unfuse_backward(net.nodes)
        for index in range(len(net.nodes) - 1, -1, -1):
            net.backward(index, index)
        for param in net.params.params:
            param.blob.diff[...] = RATE * param.lr_mult * param.blob.diff
            param.blob.data[...] -= param.blob.diff
        net.note_written()
        self.n_steps += 1
