"""Kernels that are chosen by timing: the first rank's with a card are everybody's that has such a card."""

import threading
from types import SimpleNamespace

import pytest

from scaffe.errors import UserError
from scaffe.training.ranks import turns, with_first_ranks_kernels


class Kernels:
    """A rank's backend: what its node has kept, by card and name."""

    PLACE = "device"

    def __init__(self, kept, card):
        self.kept, self.card = kept, card

    def choose(self, name, value):
        return self.kept.setdefault((self.card, name), value)

    def kernel_machine(self):
        return self.card

    def kernel_choices(self):
        return {key: value for key, value in self.kept.items() if key[0] == self.card}

    def adopt_kernel_choices(self, choices):
        self.kept |= {key: value for key, value in choices.items() if key[0] == self.card}


class Ranks:
    """A communicator of threads, each of them a rank."""

    def __init__(self, n_nodes, per_node):
        self.n_nodes, self.per_node, self.n_ranks = n_nodes, per_node, n_nodes * per_node
        self.meeting, self.given = threading.Barrier(self.n_ranks), {}

    def of(self, rank):
        nodes = [each // self.per_node for each in range(self.n_ranks)]
        return SimpleNamespace(
            rank=rank, n_ranks=self.n_ranks, barrier=self.meeting.wait,
            topology=SimpleNamespace(n_nodes=self.n_nodes, node_of_rank=nodes),
            allgather_objects=lambda value: self.gather(rank, value))

    def gather(self, rank, value):
        self.given[rank] = value
        self.meeting.wait(20)
        found = [self.given[each] for each in range(self.n_ranks)]
        self.meeting.wait(20)
        return found


def run(n_nodes, per_node, step, cards=None, needs=None):
    """What the step gives on each rank; it gets the rank's number and its kernels."""
    ranks, kept, found = Ranks(n_nodes, per_node), [{} for _ in range(n_nodes)], {}

    def rank(number):
        kernels = Kernels(kept[number // per_node], cards[number] if cards else "H100")
        try:
            found[number] = with_first_ranks_kernels(ranks.of(number), kernels, lambda: step(number, kernels),
                                                     needs[number] if needs else ())
        except UserError as error:
            found[number] = error
    threads = [threading.Thread(target=rank, args=(number,)) for number in range(ranks.n_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [found[number] for number in range(ranks.n_ranks)]


@pytest.mark.parametrize(("n_nodes", "per_node"), [(2, 1), (3, 2)])
def test_what_the_first_rank_has_chosen_is_everybodys(n_nodes, per_node):
    assert run(n_nodes, per_node, lambda rank, kernels: kernels.choose("a graph", rank)) == [0] * n_nodes * per_node


@pytest.mark.parametrize(("cards", "chosen"), [("ABBB", [0, 1, 1, 1]), ("ABAB", [0, 1, 0, 1]), ("AABA", [0, 0, 2, 0]),
                                               ("ABBA", [0, 1, 1, 0]), ("ABCD", [0, 1, 2, 3])])
@pytest.mark.parametrize("per_node", [1, 2])
def test_each_cards_first_rank_chooses_for_it(cards, chosen, per_node):
    found = run(4 // per_node, per_node, lambda rank, kernels: kernels.choose("a graph", rank), cards)
    assert found == chosen


def test_what_the_first_rank_does_not_need_the_first_that_does_chooses():
    sizes = [21, 20, 20, 21, 20]

    def step(rank, kernels):
        return kernels.choose(f"batch of {sizes[rank]}", rank), kernels.choose("testing", rank)
    assert run(5, 1, step, needs=sizes) == [(0, 0), (1, 0), (1, 0), (0, 0), (1, 0)]


def test_turns():
    assert turns([("A", 1), ("A", 2), ("B", 1), ("A", 1), ("B", 1), ("A", 3)]) == [{0, 2}, {1}, {5}]


def test_on_one_node_the_first_to_come_chooses():
    assert len(set(run(1, 3, lambda rank, kernels: kernels.choose("a graph", rank)))) == 1


@pytest.mark.parametrize("bad", [0, 1])
def test_an_error_is_everybodys_too(bad):
    def step(rank, kernels):
        if rank == bad:
            raise UserError("no such layer")
    found = run(2, 1, step)
    assert [str(error) for error in found] == ["no such layer" if bad == 0 else "rank 1: no such layer"] * 2
