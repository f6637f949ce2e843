"""Each rule against its formula in float64, several steps, histories and all; decay, clipping, policies."""

import math

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.errors import UserError
from scaffe.layers.base.blob import Blob
from scaffe.layers.kernels.cpu.threads import parallel, parts
from scaffe.nets.flat_params import FlatParams, Param, offsets
from scaffe.proto import caffe_pb2
from scaffe.training.learning_rate import Rates, learning_rate
from scaffe.training.update_rules import update_rules
from scaffe.training.updater import Updater
from tests.reference.update_rules import decayed, rule_step

RATE, N_STEPS = 0.1, 7


def solver(text):
    return text_format.Parse(text, caffe_pb2.SolverParameter())


def reference(p, w, gradients):
    """The published formulas, step by step in float64."""
    w, a, b = w.astype(np.float64), np.zeros(w.shape), np.zeros(w.shape)
    for t, g in enumerate(gradients, 1):
        w, a, b = rule_step(p, t, RATE, w, decayed(p, w, g.astype(np.float64)), a, b)
    return w, a, b


def flat(arrays, mults=None):
    blobs = [Blob(a.shape, a.dtype, channels_last=False) for a in arrays]
    for blob, array in zip(blobs, arrays):
        blob.data = array
    mults = mults or [(1.0, 1.0)] * len(arrays)
    return FlatParams([Param(i, b, *m) for i, (b, m) in enumerate(zip(blobs, mults))], arrays[0].dtype), blobs


@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
@pytest.mark.parametrize("decay", ["L2", "L1"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rules_follow_their_formulas(kind, decay, dtype):
    momentum = 0 if kind in ("AdaGrad", "RMSProp") else 0.9
    p = solver(f'type: "{kind}" momentum: {momentum} weight_decay: 0.05 regularization_type: "{decay}" delta: 1e-3 '
               'rms_decay: 0.95')
    rng = np.random.RandomState(5)
    w, gradients = rng.randn(3, 7).astype(dtype), rng.randn(N_STEPS, 3, 7).astype(dtype)
    params, (blob,) = flat([w])
    updater = Updater(p, params)
    for iteration, g in enumerate(gradients):
        blob.diff = g
        updater.update(RATE, iteration)
    expected_w, *expected = reference(p, w, gradients)
    tolerance = 2e-5 if dtype == np.float32 else 1e-6  # the message holds its numbers as float32
    np.testing.assert_allclose(blob.data, expected_w, rtol=tolerance, atol=tolerance)
    for index, wanted in enumerate(expected[:updater.rule.n_histories]):
        history = updater.shards[0].history(index)[:21].reshape(3, 7)
        np.testing.assert_allclose(history, wanted, rtol=tolerance, atol=tolerance)


def test_every_rule_is_in_the_table():
    assert set(update_rules.names()) == {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "LBFGS"}


def test_multipliers_mean_and_iter_size():
    params, (a, b, c) = flat([np.ones(5, np.float32)] * 3, [(1, 1), (2, 0), (0, 1)])
    for blob in (a, b, c):
        blob.diff = np.full(5, 8, np.float32)
    Updater(solver("weight_decay: 0.5 iter_size: 2"), params).update(0.1, 0, n_ranks=2)
    np.testing.assert_allclose(a.data, 1 - 0.1 * (8 / 4 + 0.5), rtol=1e-6)
    np.testing.assert_allclose(b.data, 1 - 0.2 * (8 / 4), rtol=1e-6)
    np.testing.assert_array_equal(c.data, 1)


@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_rules_run_on_all_threads(kind, monkeypatch):
    """Which change no bit."""
    monkeypatch.setattr(parts, "LEAST_ELEMS", 1)
    parted = []
    run_sliced = parallel.run_sliced
    monkeypatch.setattr(parallel, "run_sliced", lambda team, kernel, n_parts, *rest: (
        parted.append((team[1], n_parts)), run_sliced(team, kernel, n_parts, *rest)))
    p = solver(f'type: "{kind}" momentum: {0 if kind in ("AdaGrad", "RMSProp") else 0.9} delta: 1e-3 rms_decay: 0.95')
    rng = np.random.RandomState(5)
    w, gradients = rng.randn(53).astype(np.float32), rng.randn(N_STEPS, 53).astype(np.float32)
    found = []
    for n_threads in (1, 3):
        parts.set_parts(n_threads)
        params, (blob,) = flat([w])
        updater = Updater(p, params)
        for iteration, g in enumerate(gradients):
            parted.clear()
            blob.diff = g
            updater.update(RATE, iteration)
        found.append(blob.data.copy())
        assert parted == [(n_threads, n_threads)] * (n_threads > 1)
    parts.set_parts(1)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(("n_ranks", "limit", "factor"), [(1, 5.0, 0.5), (1, 20.0, 1.0), (2, 2.5, 0.5)])
def test_clipping_acts_on_the_mean_gradients_norm(n_ranks, limit, factor):
    params, (a, b) = flat([np.zeros(2, np.float32), np.zeros(1, np.float32)])
    a.diff, b.diff = [6, 0], [8]  # norm 10
    Updater(solver(f"clip_gradients: {limit}"), params).update(1.0, 0, n_ranks)
    np.testing.assert_allclose(np.append(a.data, b.data), -np.array([6, 0, 8]) * factor / n_ranks, rtol=1e-6)


def test_an_interval_updates_only_itself():
    params, (a, b) = flat([np.zeros(20, np.float32), np.zeros(40, np.float32)])
    a.diff, b.diff = np.ones(20), np.ones(40)
    updater = Updater(solver(""), params)
    updater.own([slice(10, 50)])
    updater.update(1.0, 0)
    assert a.data.tolist() == [0] * 10 + [-1] * 10
    assert b.data.tolist() == [-1] * (50 - 32) + [0] * (40 - 18)


@pytest.mark.parametrize(("text", "said"), [
    ('type: "AdaGrad" momentum: 0.5', "momentum cannot be used with AdaGrad, got 0.5"),
    ('type: "RMSProp" rms_decay: 1', "rms_decay must be at least 0 and below 1, got 1"),
    ('regularization_type: "L3"', "regularization_type 'L3' is unknown"),
    ('type: "Adam" momentum: 0.9 momentum2: 1 delta: 0', "Adam needs a momentum2 of at least 0 and below 1, got 1"),
    ('type: "Adam" momentum: 1', "Adam needs a momentum of at least 0 and below 1, got 1"),
    ('type: "Adam" momentum: -0.5', "Adam needs a momentum of at least 0 and below 1, got -0.5"),
])
def test_wrong_settings_are_refused(text, said):
    with pytest.raises(UserError, match=said):
        Updater(solver(text), flat([np.zeros(1, np.float32)])[0])


STAGES = "stagelr: 0.1 stagelr: 0.2 stagelr: 0.3 stageiter: 5 stageiter: 9 stageiter: 12"


@pytest.mark.parametrize(("text", "iteration", "rate"), [
    ('lr_policy: "fixed"', 9, 0.5), ('lr_policy: "step" gamma: 0.1 stepsize: 4', 9, 0.5 * 0.1**2),
    ('lr_policy: "exp" gamma: 0.9', 9, 0.5 * 0.9**9), ('lr_policy: "inv" gamma: 0.1 power: 0.75', 9, 0.5 * 1.9**-0.75),
    ('lr_policy: "multistep" gamma: 0.1 stepvalue: 3 stepvalue: 9 stepvalue: 10', 9, 0.5 * 0.01),
    ('lr_policy: "poly" power: 2 max_iter: 12', 9, 0.5 * 0.25**2),
    ('lr_policy: "sigmoid" gamma: -0.5 stepsize: 7', 9, 0.5 / (1 + math.exp(0.5 * 2))),
    # of forks: intel's multifixed, jolibrain's sgdr, warm-up, NVIDIA's ramp and lowest rate
    *((f'lr_policy: "multifixed" {STAGES}', i, rate) for i, rate in ((0, 0.1), (5, 0.1), (6, 0.2), (9, 0.2), (10, 0.3),
                                                                    (99, 0.3))),
    ('lr_policy: "sgdr" period: 4', 0, 0.5), ('lr_policy: "sgdr" period: 4', 2, (0.5 + 1e-6) / 2),
    ('lr_policy: "sgdr" period: 4', 4, 0.4), ('lr_policy: "sgdr" period: 4 min_lr: 0.1', 8, 0.25),
    ('lr_policy: "sgdr" period: 4 min_lr: 0.1', 12, 0.32),  # 4 + 8 iterations before
    ('lr_policy: "sgdr" max_iter: 6', 3, (0.5 + 1e-6) / 2),
    ('lr_policy: "step" gamma: 0.1 stepsize: 4 warmup_iter: 10 warmup_start_lr: 0.1', 5, 0.3),
    ('lr_policy: "fixed" warmup_iter: 9', 9, 0.5),
    ('lr_policy: "fixed" rampup_interval: 10 rampup_lr: 0.1', 5, 0.2),
    ('lr_policy: "step" gamma: 0.1 stepsize: 4 min_lr: 0.01', 9, 0.01),
    ('lr_policy: "poly" power: 2 max_iter: 12 min_lr: 0.1', 9, 0.1 + 0.4 * 0.25**2),
])
def test_policies(text, iteration, rate):
    assert learning_rate(solver(text + " base_lr: 0.5"), iteration) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("kind", ["AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_nothing_by_nothing_is_no_number(kind):
    """delta 0 where a gradient is 0 gives nan, as Caffe and a GPU do, and no exception; others learn as they do."""
    params, (blob,) = flat([np.ones(3, np.float32)])
    blob.diff = [0, 1, 0]
    Updater(solver(f'type: "{kind}" delta: 0'), params).update(0.1, 0)
    assert np.isnan(blob.data).tolist() == [True, False, True]


@pytest.mark.parametrize(("text", "iteration", "said"), [
    ('lr_policy: "poly" max_iter: 0 power: 1', 0, "lr_policy 'poly' has no rate at iteration 0"),
    ('lr_policy: "poly" max_iter: 3 power: 0.5', 4, "lr_policy 'poly' has no rate at iteration 4"),
    ('lr_policy: "inv" gamma: -1 power: 0.75', 1, "lr_policy 'inv' has no rate at iteration 1"),
    ('lr_policy: "inv" gamma: -1 power: 0.75', 2, "lr_policy 'inv' has no rate at iteration 2"),
    ('lr_policy: "exp" gamma: -3e38', 9, "lr_policy 'exp' has no rate at iteration 9"),
    ('lr_policy: "exp" gamma: -1e30', 2, "lr_policy 'exp' has no rate at iteration 2"),  # no float32 holds it
    ('lr_policy: "exp" gamma: inf', 1, "lr_policy 'exp' has no rate at iteration 1: inf"),
    ('lr_policy: "fixed" base_lr: nan', 0, "lr_policy 'fixed' has no rate at iteration 0: nan"),
    ('lr_policy: "multifixed" stagelr: 1', 0, "lr_policy 'multifixed' needs as many stagelr as stageiter, got 1 and 0"),
    ('lr_policy: "sgdr" p_mult: 0.5 period: 4', 0, "lr_policy 'sgdr' needs a period or a max_iter above 0"),
    ('lr_policy: "x"', 0, "lr_policy 'x' is unknown; known: exp, fixed, inv, multifixed, multistep, plateau, poly, "
     "sgdr, sigmoid, step"),
])
def test_policies_without_a_rate_are_refused(text, iteration, said):
    with pytest.raises(UserError) as caught:
        learning_rate(solver(text if "base_lr" in text else text + " base_lr: 0.5"), iteration)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("gamma, rate", [(-1e30, 0.0), (1e30, 0.5)])
def test_a_sigmoid_far_from_its_step_is_flat(gamma, rate):
    assert learning_rate(solver(f'lr_policy: "sigmoid" gamma: {gamma} stepsize: 7 base_lr: 0.5'), 9) == rate


def test_steps_of_the_policies():
    steps = solver('lr_policy: "multistep" stepvalue: 3 stepvalue: 9')
    def current_step(param, iteration):
        return Rates(param).kept(iteration)["current_step"]

    assert [current_step(steps, iteration) for iteration in (0, 3, 4, 9, 10)] == [0, 0, 1, 1, 2]  # as Caffe writes it
    assert current_step(solver('lr_policy: "fixed" stepvalue: 3'), 9) == 0
    assert [current_step(solver('lr_policy: "step" stepsize: 2'), iteration) for iteration in (0, 2, 3)] == [0, 0, 1]


def test_parameters_start_on_cache_lines():
    assert offsets([1, 16, 17]) == ([0, 16, 32], 64)
