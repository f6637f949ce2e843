"""What every layer of the registry must hold to: shapes, gradients, and who may write where."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scaffe.layers.base.axes import same_memory
from scaffe.layers.base.layer import TEST, TRAIN, Layer, layer_types
from tests.layers.gradient_check import Case, all_cases, check_exhaustive, load_cases
from tests.layers.rig import layer_parameter

CASES, NO_GRADIENT = load_cases()
GRADIENT_CASES = dict(all_cases({k: v for k, v in CASES.items() if k not in NO_GRADIENT}))
EVERY_CASE = dict(all_cases(CASES))
GARBAGE = 12345.0



def each(cases: dict[str, Case]) -> pytest.MarkDecorator:
    """One test per case."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def type_of(case: Case) -> type[Layer]:
    """The layer's class."""
    return layer_types.get(layer_parameter(case.prototxt).type)


every_case, gradient_case = each(EVERY_CASE), each(GRADIENT_CASES)


@pytest.mark.parametrize("layer_type", layer_types.names())
def test_every_layer_has_a_case(layer_type: str) -> None:
    assert CASES.get(layer_type) or NO_GRADIENT.get(layer_type), (
        f"{layer_type} has neither a case nor a reason to have none in tests/layers/cases_*.py")


@gradient_case
def test_gradient(case: Case) -> None:
    check_exhaustive(case)


@every_case
def test_shapes_announced_are_produced(case: Case) -> None:
    rig = case.rig()
    announced = [blob.shape for blob in rig.top]
    produced = rig.forward()
    if not rig.layer.reshape_always:
        assert [x.shape for x in produced] == announced
    assert all(x.dtype == np.float64 for x in produced)


@each({name: case for name, case in EVERY_CASE.items() if not type_of(case).host_only})
def test_layers_that_run_by_image_do_in_testing_with_each_image_what_they_do_with_it_among_others(case: Case) -> None:
    rig = replace(case, phase=TEST).rig()
    whole, inputs = rig.forward(), rig.inputs
    for i in range(len(inputs[0]) if rig.layer.by_image else 0):
        for image, every in zip(rig.feed(*(x[i:i + 1] for x in inputs)), whole, strict=True):
            np.testing.assert_allclose(image, every[i:i + 1], rtol=1e-12, atol=1e-12)


@each({name: case for name, case in EVERY_CASE.items() if not case.in_place})
def test_inputs_are_left_alone(case: Case) -> None:
    rig = case.rig()
    rig.forward()
    for blob, value in zip(rig.bottom, rig.inputs, strict=True):
        np.testing.assert_array_equal(rig.get(blob.data), value)


@each({name: case for name, case in EVERY_CASE.items() if not name.startswith("DecodeBBox")})  # of one phase
def test_layers_whose_forward_writes_their_parameters_say_so(case: Case) -> None:
    """TEST nets that share them make other weights of them."""
    for phase in (TRAIN, TEST):
        rig = replace(case, phase=phase).rig()
        before = [np.array(rig.get(blob.data)) for blob in rig.layer.blobs]
        for _ in range(2):
            rig.forward()
        same = all(np.array_equal(rig.get(blob.data), values)
                   for blob, values in zip(rig.layer.blobs, before, strict=True))
        assert same or rig.layer.writes_params


@every_case
def test_float32_agrees_with_float64(case: Case) -> None:
    wide, narrow = case.rig(), case.rig(np.float32)
    for mine, theirs in zip(narrow.layer.blobs, wide.layer.blobs, strict=True):
        narrow.put(mine.data, wide.get(theirs.data))
    for got, expected in zip(narrow.forward(), wide.forward(), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


@each({name: case for name, case in EVERY_CASE.items() if case.batch and case.bottoms})
def test_another_batch_size_gives_what_a_new_layer_gives(case: Case) -> None:
    rig, doubled = case.rig(), [np.concatenate([x, x[::-1]]) for x in case.inputs()]
    fresh = Case(case.prototxt, tuple(doubled), n_tops=case.n_tops, in_place=case.in_place, phase=case.phase).rig()
    rig.forward()
    for mine, theirs in zip(rig.layer.blobs, fresh.layer.blobs, strict=True):
        rig.put(mine.data, fresh.get(theirs.data))
    for got, expected in zip(rig.feed(*doubled), fresh.forward(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def _diffs(rig) -> list[np.ndarray]:
    rig.forward()
    rng = np.random.default_rng(5)
    return [rng.normal(size=blob.shape) for blob in rig.top]


@gradient_case
def test_parameter_diffs_accumulate(case: Case) -> None:
    rig = case.rig()
    if not rig.layer.blobs:
        pytest.skip("no parameters")
    _, once = rig.backward(_diffs(rig), case.propagate_down())
    rig.forward()
    for blob, diff in zip(rig.top, _diffs(rig), strict=True):
        rig.put(blob.diff, diff)
    rig.layer.backward(rig.top, case.propagate_down(), rig.bottom)
    for blob, diff in zip(rig.layer.blobs, once, strict=True):
        np.testing.assert_allclose(rig.get(blob.diff), 2 * diff, rtol=1e-9, atol=1e-12)


@gradient_case
def test_bottom_diffs_are_overwritten(case: Case) -> None:
    rig = case.rig()
    first, _ = rig.backward(_diffs(rig), case.propagate_down())
    for blob in rig.bottom:
        rig.put(blob.diff, GARBAGE)
    second, _ = rig.backward(_diffs(rig), case.propagate_down())
    for i, wanted in enumerate(case.propagate_down()):
        if wanted:
            np.testing.assert_array_equal(first[i], second[i])


def _let_go(rig, blobs) -> None:
    for blob in blobs:
        rig.put(blob.data, GARBAGE)


@gradient_case
def test_backward_reads_only_what_the_layer_says(case: Case) -> None:
    rig = case.rig()
    bottoms, tops = rig.layer.reads_bottoms, rig.layer.reads_tops
    if (bottoms and tops) or (bottoms != tops and any(
            same_memory(b.data_flat, t.data_flat) for b in rig.bottom for t in rig.top)):
        pytest.skip("it says that it reads both, or they share their memory")
    expected, params = rig.backward(_diffs(rig), case.propagate_down())
    again = case.rig()
    diffs = _diffs(again)
    _let_go(again, [*(() if bottoms else again.bottom), *(() if tops else again.top)])
    for blob, diff in zip(again.top, diffs, strict=True):
        again.put(blob.diff, diff)
    again.layer.backward(again.top, case.propagate_down(), again.bottom)
    for blob, diff, wanted in zip(again.bottom, expected, case.propagate_down(), strict=True):
        if wanted:
            np.testing.assert_array_equal(again.get(blob.diff), diff)
    for blob, diff in zip(again.layer.blobs, params, strict=True):
        np.testing.assert_array_equal(again.get(blob.diff), diff)


@gradient_case
def test_a_repeatable_layer_repeats_its_forward(case: Case) -> None:
    rig = case.rig()
    if not rig.layer.repeatable:
        pytest.skip("not repeatable")
    expected = [x.copy() for x in rig.forward()]
    params = [rig.get(blob.data) for blob in rig.layer.blobs]
    shared = any(same_memory(b.data_flat, t.data_flat) for b in rig.bottom for t in rig.top)
    if shared:
        rig.load()  # in place: what came before it is computed again first
    else:
        _let_go(rig, rig.top)
    rig.layer.forward_again(rig.bottom, rig.top, False)
    for blob, values in zip(rig.top, expected, strict=True):
        np.testing.assert_array_equal(rig.get(blob.data), values)
    for blob, values in zip(rig.layer.blobs, params, strict=True):
        np.testing.assert_array_equal(rig.get(blob.data), values)


@gradient_case
def test_nothing_is_written_that_was_not_asked_for(case: Case) -> None:
    rig = case.rig()
    rig.forward()
    if any(same_memory(b.diff_flat, t.diff_flat) for b in rig.bottom for t in rig.top):
        pytest.skip("bottom and top share their diff")
    for blob in (*rig.bottom, *rig.layer.blobs):
        rig.put(blob.diff, GARBAGE)
    for blob, diff in zip(rig.top, _diffs(rig), strict=True):
        rig.put(blob.diff, diff)
    rig.layer.param_propagate_down = [False] * len(rig.layer.blobs)
    rig.layer.backward(rig.top, [False] * len(rig.bottom), rig.bottom)
    for blob in (*rig.bottom, *rig.layer.blobs):
        assert (rig.get(blob.diff) == GARBAGE).all()
