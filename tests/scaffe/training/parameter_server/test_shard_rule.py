"""The solver's update rules on shards: against their formulas in float64, wherever a table is cut."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.errors import UserError
from scaffe.layers.kernels.specs import Segment
from scaffe.proto import caffe_pb2
from scaffe.training.parameter_server.layout import LocalUpdate, ShardRule, parts_of
from scaffe.training.update_rules import Hyper, base, update_rules
from tests.reference.update_rules import decayed, rule_step

N = 101
SEGMENTS = (Segment(0, 40, 1.0, 1.0), Segment(48, 49, 2.0, 0.0), Segment(64, N, 0.5, 3.0))
RULES = {"SGD": "momentum: 0.9", "Nesterov": "momentum: 0.9", "AdaGrad": "delta: 0.01",
         "RMSProp": "rms_decay: 0.9 delta: 0.01", "AdaDelta": "momentum: 0.95 delta: 0.001",
         "Adam": "momentum: 0.9 momentum2: 0.99 delta: 0.001"}


def solver(kind, more=""):
    return text_format.Parse(f'type: "{kind}" {RULES[kind]} weight_decay: 0.1 {more}', caffe_pb2.SolverParameter())


def multipliers():
    """Per element lr_mult and decay_mult, and whether it is in a segment."""
    lr, decay, inside = np.zeros(N), np.zeros(N), np.zeros(N, bool)
    for s in SEGMENTS:
        lr[s.start:s.stop], decay[s.start:s.stop], inside[s.start:s.stop] = s.lr_mult, s.decay_mult, True
    return lr, decay, inside


@pytest.mark.parametrize("decays", [True, False])
@pytest.mark.parametrize("cuts", [[0, N], [0, 1, 47, 48, 49, 70, N]])
@pytest.mark.parametrize("kind", RULES)
def test_a_rule_on_shards_is_its_formula(kind, cuts, decays):
    param = solver(kind, 'regularization_type: "L1"' if kind == "RMSProp" else "")
    rng = np.random.default_rng(3)
    rule = update_rules.get(kind)(param)
    made = ShardRule(rule, param, SEGMENTS, 0.25, decays)
    assert made.n_histories == rule.n_histories
    w = rng.standard_normal(N).astype(np.float32)
    histories = [np.zeros(N, np.float32) for _ in range(made.n_histories)]
    lr, decay, inside = multipliers()
    want, a, b = w.astype(np.float64), np.zeros(N), np.zeros(N)
    for t in range(1, 6):
        rate, g = 0.1 / t, rng.standard_normal(N).astype(np.float32)
        for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
            made.step(w[start:stop], g[start:stop].copy(), [h[start:stop] for h in histories], start, (rate, t - 1.0))
        gradient = decayed(param, want, 0.25 * g, decay if decays else 0.0)
        new, new_a, new_b = rule_step(param, t, rate * lr, want, gradient, a, b)
        want, a, b = (np.where(inside, new, old) for new, old in ((new, want), (new_a, a), (new_b, b)))
    np.testing.assert_allclose(w, want, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(histories[0], a, rtol=2e-4, atol=1e-6)


def test_an_update_that_divides_by_zero_names_the_rule():
    param = solver("Adam")
    made = ShardRule(update_rules.get("Adam")(param), param, SEGMENTS, 1.0)
    param.momentum = 1.0
    with pytest.raises(UserError, match="iteration 3: Adam's update divides by zero: .* momentum 1"):
        made.step(np.zeros(N, np.float32), np.zeros(N, np.float32), [np.zeros(N, np.float32)] * 2, 0, (0.1, 3.0))


def test_parts_count_from_where_the_interval_begins():
    assert parts_of(SEGMENTS, 39, 30) == [Segment(0, 1, 1.0, 1.0), Segment(9, 10, 2.0, 0.0), Segment(25, 30, 0.5, 3.0)]
    assert parts_of(SEGMENTS, 40, 8) == []


@pytest.mark.parametrize(("kind", "more", "decays", "merges"), [
    ("SGD", "momentum: 0", False, True), ("SGD", "momentum: 0", True, False), ("SGD", "", False, False),
    ("AdaGrad", "", False, False), ("Adam", "", False, False)])
def test_only_plain_steps_merge(kind, more, decays, merges):
    """A step with the sum of two gradients is two steps with them, for those rules alone that say so."""
    param = text_format.Merge(more, solver(kind))
    rng = np.random.default_rng(3)
    gradients = rng.standard_normal((2, N)).astype(np.float32)

    def after(*steps):
        made = ShardRule(update_rules.get(kind)(param), param, SEGMENTS, 1.0, decays)
        values = np.ones(N, np.float32)
        histories = [np.zeros(N, np.float32) for _ in range(made.n_histories)]
        for step in steps:
            made.step(values, step.copy(), histories, 0, (0.1, 0.0))
        return made, values

    (made, one), (_, two) = after(gradients[0] + gradients[1]), after(*gradients)
    assert made.merges is merges
    assert np.allclose(one, two, rtol=1e-5, atol=1e-6) is merges


@pytest.mark.parametrize("kind", ["L1", "L2"])
def test_accrued_gradients_have_the_decay_and_move_the_replica(kind):
    param = solver("SGD", f'regularization_type: "{kind}"')
    rng = np.random.default_rng(5)
    w, g = rng.standard_normal(N).astype(np.float32), rng.standard_normal(N).astype(np.float32)
    accrued = rng.standard_normal(N).astype(np.float32)
    lr, decay, inside = multipliers()
    gradient = np.where(inside, decayed(param, w.astype(np.float64), 0.5 * g, decay), 0)
    want_w, want_accrued, untouched = w - 0.1 * lr * gradient, accrued + gradient, g.copy()
    hyper = Hyper(0.1, param.weight_decay, kind == "L1", 0.25, 0)
    base.update_plan(LocalUpdate(param), SEGMENTS).run(w, g, [accrued], hyper, 2.0)
    np.testing.assert_allclose(w, want_w, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(accrued, want_accrued, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(g, untouched)
