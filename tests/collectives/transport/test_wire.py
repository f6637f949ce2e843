"""Half precision on the wire, without MPI: conversions, what is sent, which algorithms `auto` takes."""

import numpy as np
import pytest

from scaffe.collectives.planning.algorithm import parse, parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.planners import plan
from scaffe.collectives.runtime.engine import Execution
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport import wire_kernels
from scaffe.collectives.transport.wire import WireTransport
from scaffe.collectives.tuning.selector import Selector
from tests.collectives.halves import ROUND

AWKWARD = np.array([0.0, -0.0, np.inf, -np.inf, 65504.0, 65519.9, 65520.0, 6e-8, 2.9e-8, 1e-40, 3.4e38, -3.4e38,
                    1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, np.nan], np.float32)


@pytest.mark.parametrize("wire", ["fp16", "bf16"])
def test_conversions(wire):
    spread = np.random.default_rng(3).integers(0, 2**32, 20_000, np.uint64).astype(np.uint32).view(np.float32)
    numbers = np.concatenate([AWKWARD, spread])
    words, back = np.empty(numbers.size, np.uint16), np.empty_like(numbers)
    wire_kernels.pack(numbers, words, wire == "bf16")
    wire_kernels.unpack(words, back, wire == "bf16")
    right = ROUND[wire](numbers)
    finite = ~np.isnan(numbers)
    assert np.array_equal(back[finite].view(np.int32), right[finite].view(np.int32))
    assert np.isnan(back[~finite]).all()
    total = np.ones_like(numbers)
    wire_kernels.combine(total, words, 0, wire == "bf16")
    assert np.array_equal(total[finite], np.float32(1) + right[finite])


class Recorder:
    """A transport that sends nothing and keeps the lengths of its messages."""

    tag = 0

    def __init__(self):
        self.n_bytes = []

    def view(self, array):
        return array

    def scratch(self, slot, n_elems, like):
        return np.zeros(n_elems, like.dtype)

    def sender(self, part, peer):
        self.n_bytes.append(part.nbytes)
        return self

    receiver = sender

    def combiner(self, own, received, op):
        return self.Start

    def Start(self):
        pass

    Wait = Free = Start


@pytest.mark.parametrize(("collective", "name", "rank"),
                         [("reduce", "C", 1), ("reduce", "H", 2), ("reduce_scatter", "R", 0)])
def test_messages_have_half_the_bytes(collective, name, rank):
    steps = plan(collective, parse_pattern(name), rank, Call(Topology.flat(4), 1000, 100))
    plain, packed = Recorder(), Recorder()
    array = np.zeros(1000, np.float32)
    Execution(steps, array, "sum", plain)
    Execution(steps, array, "sum", WireTransport(packed, "bf16"))
    assert plain.n_bytes
    assert [2 * n for n in packed.n_bytes] == plain.n_bytes


@pytest.mark.parametrize("topology", [Topology.flat(4), Topology([0] * 4), Topology([0, 0, 1, 1])])
def test_auto_takes_an_algorithm_of_ours(topology):
    """For a wire, and on the helper thread ("own"), where MPI's own calls would take a core."""
    selector = Selector(topology)
    for collective, asked in (("reduce", "auto:bf16"), ("reduce_scatter", "auto:fp16"), ("reduce", "own"),
                              ("bcast", "own"), ("allgather", "own"), ("reduce_scatter", "own:bf16")):
        for n_bytes in (4, 1 << 12, 1 << 20, 1 << 28):
            chosen = selector.choose(collective, parse(asked), 0, n_bytes, False).algorithm
            assert chosen.wire == asked.partition(":")[2]
            assert not chosen.library
            assert not chosen.selection
            assert selector.can(collective, chosen)
    assert str(Selector(Topology([0])).choose("reduce", parse("auto:bf16"), 0, 400, False).algorithm) == "mpi"
