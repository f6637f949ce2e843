"""When an iteration ends: closed forms of small nets, and bounds for random ones."""

import random
from dataclasses import replace

import pytest

from scaffe.training.partition.planner.cost_model import Ranks
from scaffe.training.partition.planner.search import Plan, best_plan
from scaffe.training.partition.planner.shapes import LayerShape
from scaffe.training.partition.planner.timeline import Port, iteration_seconds
from tests.scaffe.training.partition.test_planner import machine, random_net

DATA = LayerShape("data", "Data", (), ("data",), n_outputs=1000)


def product(name, bottom, width, n_outputs, wants_gradient=True):
    """An InnerProduct of a batch of one image, which takes 3 s in three passes, or 2 s in two."""
    return LayerShape(name, "InnerProduct", (bottom,), (name,), ("replicated", "outputs", "inputs"), (width,),
                      width * n_outputs, n_outputs, (2.0 + wants_gradient) * 1e9, (wants_gradient,))


def ranks_of(n_ranks, n_partitions, link=1e3, **others):
    """Ranks that compute 1e9 multiply-adds a second, on links without latency, whose sums take no time."""
    return Ranks(n_ranks, n_partitions, 1, 1, replace(machine(0, link), sum_bandwidth=1e30), 1e9, **others)


def seconds(layers, kinds, ranks, **options):
    plan = Plan(ranks.n_ranks, ranks.n_partitions, dict(zip((layer.name for layer in layers), kinds, strict=True)), {})
    return iteration_seconds(layers, plan, ranks, **options)


def test_data_parallelism_hides_what_comes_before_the_layer_that_needs_it():
    """Two replicas, 4 KB of gradients a layer: 2 s each way at 1 kB/s. The second layer's parameters come while the
    first computes, and its gradient leaves while the first goes back."""
    layers = [DATA, product("a", "data", 1000, 1, wants_gradient=False), product("b", "a", 1000, 1)]
    got = seconds(layers, ["replicated"] * 3, ranks_of(2, 1, 1e3, update_bandwidth=4e3))
    a_here, b_here = 2, 4
    forward = max(a_here + 1, b_here) + 1
    b_back = forward + 2
    a_back = b_back + 1
    gradients = max(b_back + 2, a_back) + 2
    assert got == pytest.approx(gradients + 2 * 0.5)  # each rank updates half of two layers' 4 KB


def test_a_gathered_bottom_travels_while_own_images_are_multiplied_and_back_while_weights_are():
    layers = [DATA, product("a", "data", 1000, 10)]
    ranks = ranks_of(2, 2, 1e4)
    one_way = 4 * 1000 / 1e4
    assert seconds(layers, ["replicated", "outputs"], ranks) == pytest.approx(1 + 1 + max(1, one_way))
    still = seconds(layers, ["replicated", "outputs"], ranks, is_still=True)
    assert still == pytest.approx(3 + 2 * one_way)


def test_sums_of_chunks_travel_while_the_next_is_computed():
    layers = [DATA, product("a", "data", 1000, 1000)]
    ranks = ranks_of(2, 2, 1e4)
    to_columns, summed = 4 * 500 / 1e4, 4 * 1000 / 1e4
    forward = to_columns + 1 / 4 + max(1, summed) * 3 / 4 + summed / 4  # products take longer than sums
    backward = summed / 4 + 1 + max(1, to_columns)  # the first chunk's gradient comes before anything is computed
    assert seconds(layers, ["replicated", "inputs"], ranks) == pytest.approx(forward + backward)


def test_urgent_messages_go_before_sums():
    port = Port()
    port.post(0.0, "a", 2.0)
    port.post(0.0, "b", 1.0)
    assert port.urgent(1.0, 5.0) == 6.0  # a has 1 s left then
    assert port.done(1.5, "a") == 7.0
    assert port.done(7.5, "b") == 8.0
    assert port.done(9.0, "nobody") == 9.0


@pytest.mark.parametrize("seed", range(25))
def test_no_iteration_takes_longer_than_all_that_it_does_nor_less_than_computing(seed):
    rng = random.Random(seed)
    layers, k = random_net(rng), rng.choice((1, 2, 3, 4))
    ranks = Ranks(k * rng.choice((1, 2, 3)), k, rng.choice((1, 3, 16)), 1, machine(rng.choice((0, 1e-5)), 1e8),
                  10 ** rng.uniform(7, 10), 1e9, 1e9)
    plan = best_plan(layers, ranks)
    overlapped, still = (iteration_seconds(layers, plan, ranks, is_still) for is_still in (False, True))
    alone = sum(layer.multiply_adds for layer in layers) * ranks.n_images / ranks.multiply_adds_per_second
    assert alone <= overlapped * (1 + 1e-9)
    assert overlapped <= still * (1 + 1e-9)
    assert still <= plan.total.seconds * (1 + 1e-9)
