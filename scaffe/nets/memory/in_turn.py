"""A test net on the host whose parameters do not fit in memory together: each leaves it behind each layer that reads
it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from scaffe.nets.memory.parts import Held, forward_group
from scaffe.nets.net import Net


class InTurn:
    """See Tier. Reading brings what has left back, from the spill file.

    Args:
        test: the test net, after ``share_trained_layers``.
        trained: the training net.
        held: its parameters that may leave, by number in its plan.
        bring: has these where they can be read.
        leave: has some of them leave memory; reading brings them back.

    Attributes:
        most_bytes: of them that a step reads at once.
    """

    def __init__(self, test: Net, trained: Net, held: Mapping[int, Held], bring: Callable[[], None],
                 leave: Callable[[Collection[int]], None]) -> None:
        self._bring, self._leave, self._held = bring, leave, held.keys()
        reads = _reads(test, trained, held)
        self.most_bytes = max(sum(held[number].memory.nbytes for number in numbers) for numbers in reads)
        self._done = [numbers - following for numbers, following in zip(reads, [*reads[1:], set()], strict=True)]

    def before(self, step: int) -> None:
        """See Tier."""
        if step == 0:
            self._bring()
            self._leave(self._held)  # what has been written there

    def again(self, step: int) -> None:
        """See Tier: nothing is computed again."""

    def after(self, step: int) -> None:
        """See Tier."""
        self._leave(self._done[step])

    def close(self) -> None:
        """See Tier: nothing to do."""


def _reads(test: Net, trained: Net, held: Mapping[int, Held]) -> list[set[int]]:
    """By step, the numbers of the arrays that it reads."""
    numbers: dict[int, set[int]] = {}
    for number, each in held.items():
        for blob in (blob for layer in each.layers for blob in trained.nodes[layer].layer.blobs):
            numbers.setdefault(id(blob), set()).add(number)
    sources = test.trained_blobs(trained)
    found = [set().union(*(numbers.get(id(sources.get(id(blob))), ()) for blob in node.layer.blobs))
             for node in test.nodes]
    return [set().union(*(found[i] for i in forward_group(test, step))) for step in range(len(test.nodes))]
