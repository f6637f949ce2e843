"""Training in limited memory gives the bits of training without a limit, whatever leaves memory, and keeps to it."""

import ctypes
import errno
import json
import os
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe import mapped_files
from scaffe.cli.commands import time as time_command
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.layers.base.layer import TEST, TRAIN
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels import extents as rows
from scaffe.mapped_memory import PAGE_BYTES, inner
from scaffe.memory.backing import file_backed, pages
from scaffe.memory.backing.file_backed import FileBackedMemory
from scaffe.memory.backing.pages import Pages
from scaffe.memory.backing.spill_file import SpillFile
from scaffe.memory.backing.store import BACK, OUT
from scaffe.memory.plan import layout, search
from scaffe.memory.plan.greedy import least_bytes
from scaffe.memory.plan.plan import Choice, Do, resident_bytes
from scaffe.memory.problem import layer_groups, tensors
from scaffe.memory.problem.costs import kept_by_layers
from scaffe.memory.run import testing_nets
from scaffe.memory.run.limited_passes import limit_forward, limit_passes
from scaffe.nets.setup import Selection, make_context, make_net
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint, whole_parameters
from scaffe.training.limited_memory import LimitedMemory
from scaffe.training.observers import test as tests_observer
from scaffe.training.parameter_server.options import MemoryAccounting
from scaffe.training.solver import Observer
from scaffe.training.timers import MAIN
from tests.mpirun import mpirun
from tests.scaffe.training.limited_memory_net import CONV, NET, from_database, moves, uneven
from tests.scaffe.training.limited_memory_worker import Seen, Turns

mincore = ctypes.CDLL(None, use_errno=True).mincore
mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
SSP = {"strategy": "ssp", "servers": 0, "bucket": "0"}
DOWNPOUR = {"strategy": "downpour", "n_sync": 0, "n_fetch": 1, "n_push": 1, "warm_start": 0}


def solver_of(tmp_path, text="", net=NET, **options):
    param = caffe_pb2.SolverParameter()
    text_format.Parse('base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 6 random_seed: 5', param)
    text_format.Merge(text, param)
    text_format.Parse(net, param.net_param)
    given = {"strategy": "auto", "reduce": "auto", "allow_nan": False, "threads": 1, "readers": 1, "stage": "",
             "level": 0, "scal": "strong", "spill": str(tmp_path), "placement": "auto", **options}
    return build_solver(Communicator.single(), param, Namespace(**given))


def limited(solver):
    return next((each.tier for each in solver.observers if isinstance(each, LimitedMemory)), None)


def trained(solver):
    solver.solve()
    found = [whole_parameters(solver).tobytes(), *(each.tobytes() for each in solver.strategy.state.histories())]
    solver.close()
    return found


@pytest.fixture(autouse=True)
def every_array_counts(monkeypatch):
    monkeypatch.setattr(tensors, "LEAST_BYTES", 1)
    monkeypatch.setattr(pages, "WORTH_BYTES", 1)
    monkeypatch.setattr(layer_groups, "LEAST_BYTES", 5000)
    monkeypatch.setattr(layer_groups, "CHUNK_BYTES", 60_000)
    monkeypatch.setattr(rows, "BLOCK_BYTES", 60_000)
    monkeypatch.setattr(search, "MOST_DRAWN", 20)  # any plan gives the same bits: a short search will do
    monkeypatch.setattr(layout, "MOST_TRIALS", 20)


@pytest.fixture
def garbage(monkeypatch):
    """What is dropped holds NaN, and so does what comes, so that whoever reads it before a step writes it is found
    out."""
    take, drop = Pages.take, Pages.drop

    def taken(self, number):
        was_there = number in self._pieces
        take(self, number)
        if not was_there:
            self.arrays[number].fill(0xFF)

    def dropped(self, number):
        was_there = number in self._pieces or number < self._n_arranged
        drop(self, number)
        if was_there:  # else it may show the file
            self.arrays[number].fill(0xFF)

    monkeypatch.setattr(Pages, "take", taken)
    monkeypatch.setattr(Pages, "drop", dropped)


def limits(tmp_path, text="", **options):
    """From the least to nearly all that the net takes."""
    found = limited(solver_of(tmp_path, text, memory="99%", **options))
    arrays = [part.n_bytes for part in found.iteration.tensors]
    least = least_bytes(found.iteration)
    return [str(found.limit.unmovable + least + (sum(arrays) - least) * share // 100) for share in (0, 15, 55, 95)]


@pytest.mark.parametrize("placement", ["auto", "move", "recompute", "geeps"])
def test_the_bits_are_those_without_a_limit(tmp_path, garbage, placement):
    expected = trained(solver_of(tmp_path))
    seen = []
    for limit in limits(tmp_path):
        try:
            solver = solver_of(tmp_path, memory=limit, placement=placement)
        except UserError as error:
            assert placement in ("recompute", "geeps"), error  # they need more
            assert f"with -placement {placement}: " in str(error)
            continue
        assert trained(solver) == expected
        seen += [choice for choice in limited(solver).plan.choices if choice is not Choice.KEEP]
    assert seen if placement == "auto" else set(seen) == {
        Choice.RECOMPUTE if placement == "recompute" else Choice.MOVE}


def test_a_batch_leaves_until_backward_reads_it_again(tmp_path, garbage):
    """Readers hold five batches: pixels, a byte each, labels, places of crops. Labels may leave, which the net that
    draws its images fills once; three means stay."""
    net = from_database(tmp_path)
    solvers = [solver_of(tmp_path, net=net, memory=limit, placement="move") for limit in limits(tmp_path, net=net)]
    expected = trained(solver_of(tmp_path, net=net))
    assert [trained(solver) for solver in solvers] == [expected] * len(solvers)
    assert any(moves("x", limited(solver)) for solver in solvers)
    drawn, read = (limited(solver_of(tmp_path, net=each, memory="99%")).limit.unmovable for each in (NET, net))
    assert read - drawn == 5 * (4 * 3 * 16 * 16 + 4 * (4 + 3 * 4)) - 4 * 4 + 3 * 4


@pytest.mark.parametrize("text", ["", "clip_gradients: 0.5 iter_size: 2 "])
def test_backward_is_divided_where_the_net_would_not_fit_otherwise(tmp_path, garbage, text):
    net = "".join((
        'layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param { shape { dim: 4 dim: 3 dim: 40 '
        'dim: 41 } shape { dim: 4 } data_filler { type: "gaussian" std: 1 } data_filler { value: 2 } } }',
        *(f'layer {{ name: "c{i}" type: "Convolution" bottom: "{x}" top: "c{i}" {CONV} }}'
          f'layer {{ name: "r{i}" type: "ReLU" bottom: "c{i}" top: "c{i}" }}'
          for i, x in enumerate(("x", "c1", "c2"), 1)),
        'layer { name: "p" type: "Pooling" bottom: "c3" top: "p" pooling_param { kernel_size: 20 stride: 20 } }',
        'layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" inner_product_param { num_output: 5 '
        'weight_filler { type: "xavier" } } }',
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'))
    expected = trained(solver_of(tmp_path, text, net))
    with pytest.raises(UserError, match="at least") as error:
        solver_of(tmp_path, text, net, memory="1KB")
    least = int(re.search(r"trains in ([\d,]+) at least", str(error.value))[1].replace(",", ""))
    whole = limited(solver_of(tmp_path, text, net, memory="99%"))
    assert least < whole.limit.unmovable + least_bytes(whole.iteration)
    solver = solver_of(tmp_path, text, net, memory=str(least))
    assert {solver.net.nodes[i].name for i in solver.net.steps.divided} == {"c2", "c3"}
    assert trained(solver) == expected
    with pytest.raises(UserError, match="at least"):
        solver_of(tmp_path, text, net, memory=str(least - 1))


@pytest.mark.parametrize("text", ["", "clip_gradients: 0.5 iter_size: 2 "])
def test_parameters_and_histories_pass_through_memory(tmp_path, garbage, text):
    """At the least memory: with every gradient needed at once histories alone leave, else parameters too."""
    expected = trained(solver_of(tmp_path, text))
    found = limited(solver_of(tmp_path, text, memory="99%"))
    least = str(found.limit.unmovable + least_bytes(found.iteration))
    solver = solver_of(tmp_path, text, memory=least, placement="move")
    assert trained(solver) == expected
    found = limited(solver)
    left = {part.name for part, choice in zip(found.iteration.tensors, found.plan.choices, strict=True)
            if part.is_persistent and choice is Choice.MOVE}
    kinds = ("history",) if text else ("history", "parameters")
    assert left == {f"{layer} {kind}" for layer in ("ip", "mid", "out") for kind in kinds}


class Tables(Observer):
    """Reads what the tables have at the end."""

    def finish(self, solver):
        self.found = [each.tobytes() for each in (whole_parameters(solver), *solver.strategy.state.histories())]


class InStep(Tables):
    """Has all updates applied before each iteration, so that a run with slack has the same bits each time."""

    def before_iteration(self, solver):
        solver.strategy.synchronize_parameters()


def served(solver, observers=()):
    solver.observers += observers or [InStep()]
    solver.solve()
    solver.close()
    return solver.observers[-1].found


@pytest.mark.parametrize(("slack", "placement", "way"), [
    (0.0, "move", Choice.MOVE), (0.0, "recompute", Choice.RECOMPUTE), (0.0, "auto", Choice.RECOMPUTE),
    (2.0, "auto", Choice.MOVE)])
def test_a_workers_copy_of_served_parameters_leaves_between_forward_and_backward(tmp_path, monkeypatch, garbage, slack,
                                                                                 placement, way):
    """It comes from the tables, and with slack 0 once more from there."""
    monkeypatch.setattr(search, "MOST_DRAWN", 2000)  # which way it goes is what the whole search finds
    results, options = [], {**SSP, "slack": slack, "placement": placement}
    least = solver_of(tmp_path, **options, memory="99%")
    share = limited(least)
    most = sum(part.n_bytes for part in share.iteration.tensors if part.forward or not part.backward)
    limit = share.least + (most // 4 if placement == "recompute" else 0)
    least.close()
    for given in ({}, {"memory": str(limit)}):
        solver = solver_of(tmp_path, **{**options, **given})
        results.append(served(solver))
    assert results[0] == results[1] and len(results[0]) == 2
    found = limited(solver)
    copies = {part.name: choice for part, choice in zip(found.iteration.tensors, found.plan.choices, strict=True)
              if part.name.endswith(" parameters")}
    assert copies.keys() == {"ip parameters", "mid parameters", "out parameters"} and way in copies.values()
    assert not any(part.is_persistent for part in found.iteration.tensors)


@pytest.mark.parametrize(("text", "given"), [
    ("", {"n_fetch": 2, "n_push": 3}), ("", {"warm_start": 2}), ("clip_gradients: 0.5 ", {"n_push": 2})])
def test_what_a_downpour_replica_goes_on_from_and_what_accrues_leave(tmp_path, garbage, text, given):
    """At the least memory; where gradients are clipped together, what accrues alone."""
    options = {**SSP, **DOWNPOUR, "placement": "move", **given}
    solver = solver_of(tmp_path, text, **options, memory="99%")
    least = str(limited(solver).least)
    solver.close()
    results = []
    for memory in ("", least):
        solver = solver_of(tmp_path, text, **options, memory=memory)
        results.append(served(solver, [Turns(solver.communicator), Tables()]))
    assert results[0] == results[1]
    found = limited(solver)
    left = {part.name for part, choice in zip(found.iteration.tensors, found.plan.choices, strict=True)
            if part.is_persistent and choice is Choice.MOVE}
    kinds = ("history",) if text else ("history", "parameters")
    assert left == {f"{layer} {kind}" for layer in ("ip", "mid", "out") for kind in kinds}


@pytest.mark.mpi_job
@pytest.mark.parametrize("n_ranks", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_several_downpour_replicas_have_the_same_bits(tmp_path, n_ranks):
    done = subprocess.run([*mpirun(n_ranks), sys.executable, "-m", "tests.scaffe.training.limited_memory_worker",
                           str(tmp_path), "downpour"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads((tmp_path / "results.json").read_text()) == [[True] * n_ranks] * 3


@pytest.mark.parametrize("options", [{}, {**SSP, "slack": 0.0}])
def test_test_nets_read_the_parameters_that_are_away(tmp_path, options):
    text, results = "test_iter: 2 test_interval: 2 ", []
    least = limits(tmp_path, text, **options)[0]
    for given in ({}, {"memory": least}):
        solver, seen = solver_of(tmp_path, text, **options, **given), Seen()
        solver.observers += [tests_observer.Test(), seen]
        results.append((served(solver), [values for _, values in seen.values]))
    assert results[0] == results[1] and len(results[0][1]) == 4


def pages_there(array):
    """Bytes of an array whose pages this process has, of a file's too."""
    start, n_pages = array.ctypes.data // PAGE_BYTES, array.nbytes // PAGE_BYTES
    with Path("/proc/self/pagemap").open("rb") as file:
        file.seek(8 * start)
        return sum(int(entry) >> 63 for entry in np.frombuffer(file.read(8 * n_pages), np.uint64)) * PAGE_BYTES


@pytest.mark.parametrize(("text", "options"), [("", {}), ("iter_size: 2 ", {}), ("", {**SSP, "slack": 0.0})])
def test_gradients_of_large_layers_are_never_whole(tmp_path, text, options):
    """But where they are summed before the update, or somebody else gets them."""
    solver = solver_of(tmp_path, text, memory=limits(tmp_path, text, **options)[1], **options)
    net, by_rows = solver.net, {"ip", "mid"} if not (text or options) else set()
    assert {net.nodes[i].name for i in net.steps.behind} == by_rows
    for _ in range(3 * bool(by_rows)):
        solver.step(1)
    for param, place in zip(net.params.params, net.params.slices, strict=True):
        name, blocks = net.nodes[param.layer_index].name, net.nodes[param.layer_index].layer.param_rows
        if name in by_rows and param.blob.ndim > 1:
            length = max(block.stop - block.start for block in blocks) * param.blob.count(1)
            assert length < param.blob.n_elems
            assert pages_there(inner(net.params.diff[place.start + length + PAGE_BYTES:place.stop].view(np.uint8))) == 0
    solver.close()


@pytest.mark.parametrize(("options", "share"), [({}, 0), ({}, 1), ({**SSP, "slack": 0.0}, 0)])
def test_test_nets_read_parameters_that_do_not_fit_together(tmp_path, options, share):
    """Each leaves memory behind a layer that reads it, two layers that share one by name among them; with more room
    some stay."""
    text, results = "max_iter: 4 test_iter: 2 test_interval: 2 ", []
    limit = limits(tmp_path, text, net=uneven(), **options)[share]
    for given in ({}, {"memory": limit}):
        solver, seen = solver_of(tmp_path, text, net=uneven(), **options, **given), Seen()
        if given:
            found, test = limited(solver), solver.test_nets[0]
            arrays = [array for array, part in zip(found.executor.memory.arrays, found.iteration.tensors, strict=True)
                      if part.name.endswith("parameters")]
            there = []
            test.after_forward.append(lambda layer, there=there, arrays=arrays: there.append(
                sum(map(pages_there, arrays))))
        solver.observers += [tests_observer.Test(), seen]
        results.append((served(solver), [values for _, values in seen.values]))
    assert results[0][0] == results[1][0]
    for one, other in zip(results[0][1], results[1][1], strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
    assert results[0][1][0]["loss"] > 0
    whole = sum(array.nbytes for array in arrays)
    assert 0 < max(there) <= int(limit) - found.limit.unmovable < whole
    kept = [part for part, choice in zip(found.iteration.tensors, found.plan.choices, strict=True)
            if part.name.endswith("parameters") and part.is_persistent and choice is Choice.KEEP]
    assert bool(kept) == bool(share)


def test_test_nets_read_what_has_left_whoever_runs_them(tmp_path, garbage):
    """Nobody has brought the parameters before."""
    text, losses = "test_iter: 2 test_interval: 2 ", []
    for memory in ("", limits(tmp_path, text, net=uneven())[0]):
        solver = solver_of(tmp_path, text, net=uneven(), memory=memory)
        solver.step(1)
        losses.append(float(solver.test_forward(solver.test_nets[0])))
        solver.close()
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_limit_in_which_a_layer_of_a_test_net_does_not_fit_is_refused(tmp_path, monkeypatch):
    text = "test_iter: 2 test_interval: 2 "
    least = limits(tmp_path, text, net=uneven())[0]
    monkeypatch.setattr(testing_nets, "_reads", lambda test, trained, held: [{*held}])  # all in one pass
    with pytest.raises(UserError, match=f"-memory {least}: .* are too few for the solver's test net '': the param"):
        solver_of(tmp_path, text, net=uneven(), memory=least)


def test_a_resumed_run_goes_on_with_the_same_bits(tmp_path):
    prefix = f'snapshot_prefix: "{tmp_path}/x"'
    limit, results = limits(tmp_path)[0], []
    for given in ({}, {"memory": limit}):
        solver = solver_of(tmp_path, f"{prefix} max_iter: 2", **given)
        solver.solve()
        save_checkpoint(solver)
        solver.close()
        solver = solver_of(tmp_path, prefix, **given)
        restore_checkpoint(solver, tmp_path / "x_iter_2.solverstate")
        results.append(trained(solver))
    assert results[0] == results[1]


def test_a_snapshot_without_memory_for_it_is_one_line(tmp_path, monkeypatch):
    prefix = f'snapshot_prefix: "{tmp_path}/x" snapshot_format: '
    for kind in ("HDF5", "BINARYPROTO"):
        solver = solver_of(tmp_path, prefix + kind)
        solver.step(1)
        monkeypatch.setattr(solver.strategy.state, "histories", raise_memory_error)
        with pytest.raises(UserError, match="^rank 0 has not enough memory for the snapshot of iteration 1$"):
            save_checkpoint(solver)
        solver.close()


def raise_memory_error():
    raise MemoryError


@pytest.mark.mpi_job
def test_two_ranks_train_to_the_same_bits_under_every_strategy_in_step(tmp_path):
    done = subprocess.run([*mpirun(2), sys.executable, "-m", "tests.scaffe.training.limited_memory_worker",
                           str(tmp_path)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads((tmp_path / "results.json").read_text())
    assert results == [[True, True]] * 13  # see the worker


def test_pages_stay_where_the_limit_has_room_for_that(tmp_path, garbage):
    expected = trained(solver_of(tmp_path))
    solver = solver_of(tmp_path, memory="97%")
    there, kept = limited(solver).executor.memory, kept_by_layers(solver.net)
    solver.step(6)
    assert kept_by_layers(solver.net) - kept < 1000  # counted before anything ran, but for gradients of biases
    assert there._n_arranged == len(there._separate)
    ends = [array.ctypes.data + array.nbytes for array in there.arrays[:there._n_arranged]]
    length = max(ends) - there._whole.ctypes.data
    assert length < sum(array.nbytes for array in there._separate)  # some overlap
    assert resident(there._whole[:length]) == length
    assert resident(there._whole) == length
    assert [each.tobytes() for each in (whole_parameters(solver), *solver.strategy.state.histories())] == expected
    assert resident(there._whole) == 0  # who reads everything at once has room for it
    solver.close()


def resident(array):
    """Bytes of an array that are in memory, as the system counts them."""
    n_pages = array.nbytes // PAGE_BYTES
    pages = (ctypes.c_ubyte * n_pages)()
    assert mincore(array.ctypes.data, array.nbytes, pages) == 0
    return PAGE_BYTES * sum(page & 1 for page in pages)


@pytest.mark.parametrize(("placement", "options"), [
    ("auto", {}), ("recompute", {}), ("move", {**SSP, "slack": 0.0}), ("auto", {**SSP, "slack": 0.0})])
def test_no_more_is_in_memory_than_planned_after_any_step(tmp_path, placement, options, monkeypatch):
    monkeypatch.setattr(layout, "TRIALS", 0)
    limit = limits(tmp_path, **options)[2 if placement == "recompute" else 0]
    solver = solver_of(tmp_path, memory=limit, placement=placement, **options)
    solver.strategy.begin()
    found = limited(solver)
    tier, seen = found.executor, []
    after = tier.after

    def watched(step):
        now = sum(map(resident, tier.memory.arrays))
        assert now <= max(resident_bytes(found.iteration, tier.plan))
        assert tier.memory.n_bytes - tier.memory._free.n_bytes <= resident_bytes(found.iteration, tier.plan)[step]
        seen.append(now)
        after(step)

    tier.after = watched
    solver.step(5)
    n_steps = len(found.iteration.seconds)
    assert len(seen) == 5 * n_steps
    assert len(set(seen[-n_steps:])) == 1  # no page comes or goes any more
    assert seen[-1] > 0.9 * max(resident_bytes(found.iteration, tier.plan))
    whole_parameters(solver), solver.strategy.state.histories()
    renewed = [number for number, each in enumerate(tier._state, len(tier._activations)) if each.is_refreshed]
    assert len(renewed) == (3 if options else 0)  # which the file shows now
    assert not any(resident(tier.memory.arrays[i]) for i, part in enumerate(tier.tensors)
                   if not part.is_persistent and i not in renewed)
    solver.close()


@pytest.mark.parametrize("slack", [0.0, 2.0])
def test_a_server_has_a_file_where_the_net_needs_a_limit_and_else_memory(tmp_path, slack):
    for memory, is_in_memory in (("", True), ("100%", True), ("90%", False)):
        solver = solver_of(tmp_path, **SSP, slack=slack, memory=memory)
        solver.strategy.begin()
        assert solver.strategy.tables.server._running.store.tier.keeps_all == is_in_memory
        solver.strategy.finish()
        solver.close()


def test_no_room_for_tables_ends_a_run_before_it_trains(tmp_path, monkeypatch):
    solver = solver_of(tmp_path, **SSP, slack=0.0, memory="90%")
    monkeypatch.setattr(os, "fstatvfs", lambda _: Namespace(f_bavail=7, f_frsize=1000))
    with pytest.raises(CommError, match=rf"folder {tmp_path}: [\d,]+ bytes are needed: the disk has 7,000 free"):
        solver.solve()
    assert solver.iteration == 0
    solver.close()


@pytest.mark.parametrize("slack", [0.0, 2.0])
def test_the_servers_memory_on_a_worker_is_counted(tmp_path, slack):
    solver = solver_of(tmp_path, **SSP, slack=slack)
    solver.strategy.begin()
    server = solver.strategy.tables.server
    store, rows = server._running.store, [batch._rows for batch in solver.strategy.tables.batches]
    arrays = [*store.values.values(), *store.updates[0], *(each for own in store.histories.values() for each in own),
              *(each._gathered for each in rows if each.is_copied)]
    assert sum(each.nbytes for each in arrays) == solver.strategy.state.kept_bytes
    assert any(each.is_copied for each in rows) == bool(slack)
    solver.strategy.finish()
    solver.close()


def test_a_rank_that_is_a_server_alone_has_the_limit_too(tmp_path, monkeypatch):
    """The tables lie in a file where it does not fit with them in memory, though the net does; where it does not fit so
    either, it is refused."""
    for in_file in (0, 1 << 40):
        monkeypatch.setattr(MemoryAccounting, "of_server",
                            lambda self, n_bytes=in_file: n_bytes if self.in_file else 1 << 40)
        if in_file:
            with pytest.raises(UserError, match=r"-memory 100%: [\d,]+ bytes are too few for a rank that is a server "
                                                r"alone, which takes 1,099,511,627,776 \(-servers\)"):
                solver_of(tmp_path, **SSP, slack=0.0, memory="100%")
            continue
        solver = solver_of(tmp_path, **SSP, slack=0.0, memory="100%")
        solver.strategy.begin()
        assert not solver.strategy.tables.server._running.store.tier.keeps_all
        solver.strategy.finish()
        solver.close()


@pytest.mark.parametrize("options", [{}, pytest.param({**SSP, "slack": 0.0}, marks=pytest.mark.thorough)])
def test_a_spill_folder_may_be_larger_than_what_a_process_can_address(tmp_path, monkeypatch, options):
    """Ninety terabytes free; and windows on the file that have room for a few parameters each."""
    expected, limit = served(solver_of(tmp_path, **options)), limits(tmp_path, **options)[0]
    monkeypatch.setattr(os, "fstatvfs", lambda _: Namespace(f_bavail=90 << 30, f_frsize=1 << 10))
    monkeypatch.setattr(file_backed, "LEAST_BYTES", 1)
    for memory in (limit, "100%"):
        assert served(solver_of(tmp_path, memory=memory, **options)) == expected


@pytest.mark.mpi_job
@pytest.mark.parametrize(("n_ranks", "limit", "strategy", "slack"), [
    (1, "45%", "auto", 0), (3, "50%", "ssp", 2), (1, "45%", "downpour", 0),
    *(pytest.param(*case, marks=pytest.mark.thorough) for case in [
        (1, "45%", "ssp", 0), (1, "45%", "ssp", 2), (2, "50%", "ssp", 0), (2, "50%", "ssp", 2), (3, "50%", "ssp", 0),
        (2, "50%", "downpour", 0), (3, "50%", "downpour", 0)])])
def test_the_peak_of_resident_memory_is_the_limit_and_what_was_there_before(tmp_path, n_ranks, limit, strategy, slack):
    """With what of a server is in memory, whose tables lie in a file."""
    done = subprocess.run([*(mpirun(n_ranks) if n_ranks > 1 else ()), sys.executable, "-m",
                           "tests.scaffe.training.peak_memory_worker", limit, str(tmp_path), strategy, str(slack)],
                          capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    ranks = json.loads(done.stdout)
    assert len(ranks) == n_ranks
    for found in ranks:
        assert found["peak"] - found["before"] <= 1.05 * found["limit"]
        assert found["moved"]


@pytest.mark.parametrize("placement", ["auto", "move"])
def test_passes_of_a_net_that_nobody_trains_layer_by_layer(tmp_path, placement, garbage):
    """As ``time`` runs them: each layer by itself."""
    found = []
    for memory in ("", "70%"):
        context = make_context(cpu, Stream(3), Share(), 3)
        net = make_net(text_format.Parse(NET, caffe_pb2.NetParameter()), Selection(TRAIN), context, "net")
        tier = limit_passes(net, memory, placement, str(tmp_path)) if memory else None
        for _ in range(3):
            net.clear_param_diffs()
            for index in range(len(net.nodes)):
                net.forward(index, index)
            for index in reversed(range(len(net.nodes))):
                net.backward(index, index)
            if tier is not None:
                tier.replan()
        found.append(net.params.diff.tobytes())
        net.close()
    assert found[0] == found[1]
    assert tier.mover.offloaded or tier.executor.recomputed_seconds


@pytest.mark.parametrize("placement", ["auto", "move"])
def test_a_net_that_runs_forward_alone_reads_its_parameters_layer_by_layer(tmp_path, placement, garbage):
    found = []
    for memory in ("", "99%", "1"):
        context = make_context(cpu, Stream(3), Share(), 3)
        context.param_memory = backed = FileBackedMemory(SpillFile(str(tmp_path))) if memory else None
        net = make_net(text_format.Parse(NET, caffe_pb2.NetParameter()), Selection(TEST), context, "net")
        if memory == "1":
            with pytest.raises(UserError, match="are too few") as raised:
                limit_forward(net, "1", placement, backed, ["c3"])
            memory = re.search(r"trains in ([\d,]+)", str(raised.value))[1].replace(",", "")
        tier = limit_forward(net, memory, placement, backed, ["c3"]) if memory else None
        found.append([])
        for _ in range(3):
            net.forward()
            found[-1] += [blob.data.tobytes() for blob in (net.blobs["loss"], net.blobs["c3"])]
            if tier is not None:
                tier.replan()
        net.close()
    assert found[0] == found[1] == found[2]
    assert tier.mover.fetched and {part.name for part in tier.iteration.tensors if part.is_persistent} == {
        "ip parameters", "mid parameters", "out parameters"}
    assert not any(part.is_persistent for part in (tier.iteration.tensors[i] for i in tier.plan.tensors_of(Do.OFFLOAD)))


def test_time_says_what_a_limit_costs(tmp_path, capfd):
    (tmp_path / "net.prototxt").write_text(NET)
    flags = ["-model", str(tmp_path / "net.prototxt"), "-iterations", "1", "-threads", "1"]
    assert time_command.main([*flags, "-memory", "70%", "-spill", str(tmp_path)]) == 0
    assert re.search(r"Memory: .* written, .* read back, waited .* s, computed again for .* s", capfd.readouterr().err)
    assert time_command.main([*flags, "-memory", "1KB"]) == 1
    assert re.search(r"-memory 1KB: 1,000 bytes are too few; this net trains in [\d,]+ at least",
                     capfd.readouterr().err)


def test_a_timeline_gets_moves_and_waits(tmp_path):
    solver, spans = solver_of(tmp_path, memory=limits(tmp_path)[0], placement="move"), []
    solver.timers.record = lambda thread, label, start, end: spans.append((thread, label.split()[0], end - start))
    trained(solver)
    assert {(thread, label) for thread, label, _ in spans if thread in (OUT, BACK)} == {(OUT, "save"), (BACK, "fetch")}
    assert any(thread == MAIN and label == "wait" for thread, label, _ in spans)
    assert all(seconds >= 0 for *_, seconds in spans)


def test_a_net_that_fits_is_left_alone(tmp_path):
    solver = solver_of(tmp_path, memory="100%")
    assert not solver.net.tiers and limited(solver) is None
    solver.close()


def test_too_little_memory_is_one_line_with_the_least(tmp_path):
    with pytest.raises(UserError, match=r"-memory 1KB: 1,000 bytes are too few; this net trains in [\d,]+ at least"):
        solver_of(tmp_path, memory="1KB")


def test_a_net_that_shows_its_values_is_refused(tmp_path):
    with pytest.raises(UserError, match="-memory does not go with debug_info"):
        solver_of(tmp_path, memory="99%", text="debug_info: true")


def test_a_blob_that_grows_is_refused_at_the_next_pass(tmp_path):
    solver = solver_of(tmp_path, memory="90%")
    blob = next(each.blob for each in limited(solver).executor._activations if each.tensor.name == "sum")
    blob.reshape((8, *blob.shape[1:]))
    with pytest.raises(UserError, match="blob 'sum' had 8192 elements when training began, and has 16384 now"):
        solver.net.forward()
    solver.close()


def test_a_failing_disk_ends_training_with_a_line_and_no_hang(tmp_path, monkeypatch):
    """And the snapshots that were written before are whole."""
    prefix = f'snapshot_prefix: "{tmp_path}/x"'
    solver = solver_of(tmp_path, prefix, memory=limits(tmp_path)[0], placement="move")
    solver.step(2)
    save_checkpoint(solver)
    expected = whole_parameters(solver).tobytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(UserError, match=r"-spill .*: [\d,]+ bytes could not be written: No space left on device"):
        solver.solve()
    solver.close()
    monkeypatch.undo()
    solver = solver_of(tmp_path, prefix)
    restore_checkpoint(solver, tmp_path / "x_iter_2.solverstate")
    assert whole_parameters(solver).tobytes() == expected
    solver.close()


@pytest.mark.parametrize("when", ["building", "snapshot"])
def test_what_a_disk_has_not_written_ends_training_with_a_line(tmp_path, monkeypatch, when):
    def ask(_):
        raise OSError(errno.EIO, "Input/output error")

    solver = solver_of(tmp_path, f'snapshot_prefix: "{tmp_path}/x"', memory=limits(tmp_path)[0], placement="move")
    if when == "snapshot":
        solver.step(2)
    monkeypatch.setattr(mapped_files, "ask", ask)
    with pytest.raises(UserError, match=f"^-spill: folder {tmp_path}: parameters or histories were not written: Input"):
        solver.step(1) if when == "building" else save_checkpoint(solver)
    solver.close()
    assert not list(tmp_path.glob("x*"))
