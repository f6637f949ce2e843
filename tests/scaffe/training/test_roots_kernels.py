"""Kernels that are chosen by timing: rank 0's choice is everybody's, before anybody else chooses."""

import threading
from types import SimpleNamespace

import pytest

from scaffe.errors import UserError
from scaffe.training.ranks import with_roots_kernels


class Kernels:
    """A backend of one machine: what it has chosen, by name."""

    PLACE = "device"

    def __init__(self):
        self.chosen = {}

    def choose(self, name, value):
        return self.chosen.setdefault(name, value)

    def kernel_choices(self):
        return dict(self.chosen)

    def adopt_kernel_choices(self, choices):
        self.chosen |= choices


class Ranks:
    """A communicator of threads, each of them a rank."""

    def __init__(self, n_nodes, per_node):
        self.n_nodes, self.per_node, self.n_ranks = n_nodes, per_node, n_nodes * per_node
        self.meeting, self.given = threading.Barrier(self.n_ranks), {}

    def of(self, rank):
        return SimpleNamespace(
            rank=rank, n_ranks=self.n_ranks, node_rank=rank % self.per_node, barrier=self.meeting.wait,
            topology=SimpleNamespace(n_nodes=self.n_nodes), allgather_objects=lambda value: self.gather(rank, value),
            bcast_object=lambda value: self.gather(rank, value)[0])

    def gather(self, rank, value):
        self.given[rank] = value
        self.meeting.wait(20)
        found = [self.given[each] for each in range(self.n_ranks)]
        self.meeting.wait(20)
        return found


def run(n_nodes, per_node, step):
    """What the step gives on each rank; it gets the rank's number and its machine's kernels."""
    ranks, machines, found = Ranks(n_nodes, per_node), [Kernels() for _ in range(n_nodes)], {}

    def rank(number):
        kernels = machines[number // per_node]
        try:
            found[number] = with_roots_kernels(ranks.of(number), kernels, lambda: step(number, kernels))
        except UserError as error:
            found[number] = error
    threads = [threading.Thread(target=rank, args=(number,)) for number in range(ranks.n_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [found[number] for number in range(ranks.n_ranks)]


@pytest.mark.parametrize(("n_nodes", "per_node"), [(2, 1), (3, 2)])
def test_what_rank_0_has_chosen_is_everybodys(n_nodes, per_node):
    assert run(n_nodes, per_node, lambda rank, kernels: kernels.choose("a graph", rank)) == [0] * n_nodes * per_node


def test_what_rank_0_does_not_need_each_node_chooses():
    found = run(3, 1, lambda rank, kernels: kernels.choose(f"batch of {20 if rank else 21}", rank))
    assert found == [0, 1, 2]


def test_on_one_node_the_first_to_come_chooses():
    assert len(set(run(1, 3, lambda rank, kernels: kernels.choose("a graph", rank)))) == 1


@pytest.mark.parametrize("bad", [0, 1])
def test_an_error_is_everybodys_too(bad):
    def step(rank, kernels):
        if rank == bad:
            raise UserError("no such layer")
    found = run(2, 1, step)
    assert [str(error) for error in found] == ["no such layer" if bad == 0 else "rank 1: no such layer"] * 2
