"""Learning rates that depend on the losses: SSD's ``plateau``, against its rule applied to the whole history."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe as caffe
from scaffe.errors import UserError
from scaffe.files import SolverState, read_state
from scaffe.proto import caffe_pb2
from scaffe.training.learning_rate import rates_of
from scaffe.training.solver import Solver

NET = """layer { name: "in" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 2 dim: 3 }
  shape { dim: 2 dim: 1 } data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 2 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc" inner_product_param { num_output: 1 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "y" top: "loss" }"""
PLATEAU = 'base_lr: 0.5 lr_policy: "plateau" gamma: 0.1 '


def param(text: str):
    return text_format.Parse(text, caffe_pb2.SolverParameter())


def naive(losses: list[float], sizes: list[int], average: int) -> list[int]:
    """The steps after each loss, one ``sizes[step]`` iterations after the last event."""
    smoothed = [np.float32(np.mean(losses[max(0, i + 1 - average):i + 1])) for i in range(len(losses))]
    events, steps = [], []
    for i, loss in enumerate(smoothed):
        if loss < min(smoothed[:i], default=np.inf):
            events.append(i)
        number = steps[-1] if steps else 0
        if number < len(sizes) and i - events[-1] >= sizes[number]:
            events.append(i)
            number += 1
        steps.append(number)
    return steps


@pytest.mark.parametrize("seed", range(20))
def test_plateau_follows_its_rule_and_goes_on_from_a_state(seed):
    rng = np.random.default_rng(seed)
    sizes, average = rng.integers(1, 6, rng.integers(1, 4)).tolist(), int(rng.integers(1, 4))
    losses = (rng.uniform(0, 1, 60) + np.linspace(1, 0, 60) * rng.integers(0, 3)).tolist()
    p = param(PLATEAU + f"average_loss: {average} " + " ".join(f"plateau_winsize: {n}" for n in sizes))
    rates, stop = rates_of(p), int(rng.integers(0, 60))
    for i, (loss, steps) in enumerate(zip(losses, naive(losses, sizes, average), strict=True)):
        if i == stop:
            again = rates_of(p)
            again.restore(SolverState(iteration=i, **rates.kept(i)))
            rates = again
        rate = rates.after(lambda loss=loss: loss, i, rates.before(i))
        assert rate == rates.before(i + 1) == pytest.approx(0.5 * 0.1**steps)
        assert rates.kept(i + 1)["current_step"] == steps
    assert steps > 0


def solver(folder, text):
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(f'net: "{folder}/net.prototxt" snapshot_prefix: "{folder}/run" {text}')
    return caffe.get_solver(str(folder / "solver.prototxt"))


@pytest.mark.parametrize("kind", ["BINARYPROTO", "HDF5"])
def test_a_solver_whose_loss_stays_lowers_its_rate_and_resumes(tmp_path, kind):
    """The weights do not learn (lr_mult 0 by a rate of 0), so that the loss is the same in every iteration."""
    text = (PLATEAU + "plateau_winsize: 2 plateau_winsize: 3 average_loss: 2 max_iter: 100 random_seed: 1 "
            f"snapshot_format: {kind}").replace("0.5", "1e-30")
    made, rates = solver(tmp_path, text), []
    for _ in range(7):
        made.step(1)
        rates.append(made.lr)
    np.testing.assert_allclose(rates, np.array([1, 1, .1, .1, .1, .01, .01]) * 1e-30, rtol=1e-6)
    first = solver(tmp_path, text)
    first.step(4)
    first.snapshot()
    ending = ".h5" if kind == "HDF5" else ""
    state = read_state(tmp_path / f"run_iter_4.solverstate{ending}")
    assert (state.current_step, state.iter_last_event, len(state.losses)) == (1, 2, 2)
    assert state.minimum_loss == pytest.approx(2.0)
    resumed = solver(tmp_path, text)
    resumed.restore(str(tmp_path / f"run_iter_4.solverstate{ending}"))
    for rate in rates[4:]:
        resumed.step(1)
        assert resumed.lr == rate


def test_a_state_of_the_fork():
    rates = rates_of(param(PLATEAU + "plateau_winsize: 5 plateau_winsize: 5"))
    rates.restore(SolverState(iteration=10, current_step=1, minimum_loss=0.25, iter_last_event=8))
    steps = [round(rates.after(lambda: 0.5, i, 0.0) / 0.5, 6) for i in (11, 12, 13)]
    assert steps == [0.1, 0.1, 0.01]


def test_warm_up_comes_first():
    rates = rates_of(param(PLATEAU + "plateau_winsize: 1 warmup_iter: 3"))
    got = [rates.after(lambda: 1.0, i, rates.before(i)) for i in range(5)]
    np.testing.assert_allclose(got, [0, 0.5 / 3, 1 / 3, 0.5, 0.05], rtol=1e-6)


def test_windows_are_wanted():
    for text in ("", "plateau_winsize: 0"):
        with pytest.raises(UserError, match="needs plateau_winsize"):
            rates_of(param(PLATEAU + text))


def test_ranks_out_of_step_are_refused():
    alone, both = SimpleNamespace(n_ranks=1), SimpleNamespace(n_ranks=2)
    strategy = SimpleNamespace(in_step=SimpleNamespace(peers=alone))
    ours = SimpleNamespace(strategy=strategy, communicator=both, param=param(PLATEAU))
    with pytest.raises(UserError, match="not in step"):
        Solver._mean_loss(ours, 1.0)
