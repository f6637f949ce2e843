"""Training within limited memory of a device whose tensors lie in pages: the bits of training without a limit. Here
arrays that are never there together really are the same memory, so that a wrong alias, or a copy or a kernel that comes
too early or too late, leaves other bits."""

import numpy as np
import pytest

from scaffe.layers.kernels import device
from scaffe.memory.plan import paging
from scaffe.memory.plan.layout import least_together
from scaffe.memory.plan.placements import PLACEMENTS
from scaffe.memory.plan.plan import Choice
from scaffe.memory.plan.schedule import schedule
from scaffe.training import limited_memory
from scaffe.training.solver import Observer
from tests import pretend
from tests.pretend import driver
from tests.pretend.memory import counters
from tests.scaffe.device import test_limited_memory as plain
from tests.scaffe.device.test_limited_memory import (
    TESTS,
    as_in_a_new_process,
    late,
    limited,
    limits,
    moved,
    on_device,
    peak,
    solver_of,
    trained,
    with_tests,
)
from tests.scaffe.training.limited_memory_net import from_database, uneven

PAGE = 4096
MEASURED_AFTER = limited_memory.MEASURED_AFTER_ON_DEVICE
pytestmark = pytest.mark.skip(reason="a card's pages are too long") if plain.REAL else plain.pytestmark
__all__ = ["on_device"]


@pytest.fixture(autouse=True)
def in_pages(on_device, monkeypatch):
    monkeypatch.setattr(paging, "LEAST_PAGES", 1)
    pretend.install(monkeypatch, page_bytes=PAGE)
    as_in_a_new_process()


def stays(solver):
    """For each tensor in how many places it is in an iteration; none where tensors do not lie in pages."""
    tier = limited(solver)
    layout = tier._store._lay(tier.iteration, tier.plan, tier.limit.n_bytes - tier.limit.unmovable)
    counts = [0] * len(tier.iteration.tensors) if layout.stays else []
    for stay in layout.stays:
        counts[stay.tensor] += 1
    return counts


@pytest.mark.parametrize("placement", ["auto", "move"])
def test_the_bits_are_those_without_a_limit(tmp_path, placement):
    expected, seen = trained(solver_of(tmp_path)), []
    for limit in limits(tmp_path)[:3]:
        solver = solver_of(tmp_path, memory=limit, placement=placement)
        assert trained(solver) == expected
        seen += stays(solver)
    assert max(seen) == 2  # forward's and backward's place


def test_what_is_computed_again_is_so_elsewhere(tmp_path, monkeypatch):
    expected, limit = trained(solver_of(tmp_path)), limits(tmp_path)[1]
    monkeypatch.setitem(PLACEMENTS, "auto", all_again)
    solver = solver_of(tmp_path, memory=limit)
    tier = limited(solver)
    assert trained(solver) == expected
    again = [number for number, choice in enumerate(tier.plan.choices) if choice is Choice.RECOMPUTE]
    assert len(again) > 1 and {stays(solver)[number] for number in again} == {2}


def all_again(iteration, n_bytes, bandwidth):
    """Computed again, what can be, with inputs there; all else is offloaded."""
    return schedule(iteration, [Choice.MOVE if part.recompute is None else Choice.RECOMPUTE
                                for part in iteration.tensors], n_bytes, bandwidth)


def test_a_batch_and_what_is_offloaded_have_other_addresses_in_backward(tmp_path):
    net = from_database(tmp_path)
    expected, limit = trained(solver_of(tmp_path, net=net)), limits(tmp_path, net=net)[0]
    solver = solver_of(tmp_path, net=net, memory=limit, placement="move")
    assert trained(solver) == expected
    tier = limited(solver)
    away = [number for number, choice in enumerate(tier.plan.choices)
            if choice is Choice.MOVE and number < tier._n_blobs]
    assert away and all(stays(solver)[number] == 2 for number in away)
    state = range(tier._n_blobs, len(tier.iteration.tensors))
    assert {stays(solver)[number] for number in state} == {1}
    assert any(choice is Choice.MOVE for choice in tier.plan.choices[tier._n_blobs:])


@pytest.mark.parametrize("text", ["iter_size: 2 clip_gradients: 0.5", 'type: "Adam" momentum2: 0.99'])
def test_with_other_updates_too(tmp_path, text):
    expected, limit = trained(solver_of(tmp_path, text)), limits(tmp_path, text)[1]
    solver = solver_of(tmp_path, text, memory=limit)
    assert trained(solver) == expected
    assert moved(solver)
    assert stays(solver)


def test_test_nets_share_the_pages(tmp_path):
    """Before passes are recorded and after, and with the peak within the limit."""
    options, peaks = {"net": uneven()}, []
    expected, limit = with_tests(solver_of(tmp_path, TESTS, **options)), limits(tmp_path, TESTS, **options)[1]
    with peak(peaks):
        solver = solver_of(tmp_path, TESTS, **options, memory=limit)
        assert with_tests(solver) == expected
    assert peaks[0] <= int(limit)
    assert stays(solver)


def test_memory_is_taken_once_and_given_back(tmp_path):
    limit = limits(tmp_path)[1]
    as_in_a_new_process()
    before = counters.peak = counters.used
    solver = solver_of(tmp_path, memory=limit)
    solver.strategy.begin()
    solver.step(6)
    assert 0.8 * int(limit) < counters.peak - before <= int(limit)
    solver.strategy.finish()
    solver.close()
    used = counters.used
    del solver
    as_in_a_new_process()
    assert counters.used < used


def test_pages_never_take_more_than_one_piece_does(tmp_path):
    solver = solver_of(tmp_path, memory="99%")
    tier, iteration = limited(solver), limited(solver).iteration
    lay = tier._store._lay
    assert isinstance(lay, paging.Paging)
    assert least_together(iteration, lay) <= -(-least_together(iteration) // PAGE) * PAGE


def test_where_the_driver_has_no_room_arrays_lie_in_one_piece_and_a_line_says_so(tmp_path, capfd, monkeypatch):
    expected, limit = trained(solver_of(tmp_path)), limits(tmp_path)[2]
    refused = driver.Driver(PAGE, 0)
    monkeypatch.setattr(driver.driver, "library", lambda: refused)
    capfd.readouterr()
    solver = solver_of(tmp_path, memory=limit)
    assert ("Memory: arrays lie in one piece, since the device gives no pages: cuMemCreate: CUDA error 2, refused by "
            "the pretend driver") in capfd.readouterr().err
    assert trained(solver) == expected
    assert not stays(solver)


def test_recordings_measure_and_those_made_for_the_next_plan_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(limited_memory, "MEASURED_AFTER_ON_DEVICE", MEASURED_AFTER)
    text, marked, counts = "max_iter: 7", [], []
    expected, limit = trained(solver_of(tmp_path, text)), limits(tmp_path, text)[0]
    record = device.record_at_launch
    monkeypatch.setattr(device, "record_at_launch", lambda *given: marked.append(given) or record(*given))
    solver = solver_of(tmp_path, text, memory=limit, placement="move")
    solver.observers.append(Each(lambda: counts.append(len(marked))))
    assert trained(solver) == expected
    assert counts == [0, 0, *[len(marked)] * 5]  # all in the third iteration
    assert len(marked) > len(solver.net.nodes)


class Each(Observer):
    """Calls something after each iteration."""

    def __init__(self, call):
        self._call = call

    def after_iteration(self, solver):
        self._call()


def test_recordings_keep_the_addresses_that_each_step_has(tmp_path):
    """Blobs are somewhere else in backward, which is recorded there; and back again in the next forward."""
    limit = limits(tmp_path)[0]
    solver = solver_of(tmp_path, memory=limit, placement="move")
    tier, seen = limited(solver), []
    solver.strategy.begin()
    with late():
        solver.step(6)
        number = next(i for i, count in enumerate(stays(solver)) if count == 2)
        blobs = tier.executor._sharers[number]
        last = len(tier.iteration.seconds) - 1
        for step in (0, last, 0, last):
            tier.executor.place(step)
            seen.append({blob.data_flat.data.ptr for blob in blobs})
    assert [len(each) for each in seen] == [1] * 4
    assert seen[0] == seen[2] != seen[1] == seen[3]
    assert np.all([blob.data_flat.size >= blob.n_elems for blob in blobs])
    solver.strategy.finish()
    solver.close()
