"""Gradients against two-sided differences, after Caffe's exhaustive check: every output by every input element."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from scaffe.layers.base.layer import TRAIN
from tests.layers.rig import Rig, spread

STEP = 1e-5
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Case:
    """One layer with options and tiny inputs, away from kinks by construction.

    Attributes:
        prototxt: the LayerParameter's text.
        bottoms: per bottom its data, or a shape to be filled by ``spread``.
        gradient: which bottoms have a gradient; None is all.
        params: which parameters have one; None is all.
        n_tops, in_place, phase: as for Rig.
        tops: which tops carry a gradient back; None is all.
        batch: whether doubling axis 0 of all bottoms is a legal reshape.
        label: tells cases of one layer apart in test names.
    """

    prototxt: str
    bottoms: tuple = ()
    gradient: tuple[int, ...] | None = None
    params: tuple[int, ...] | None = None
    n_tops: int | None = None
    in_place: bool = False
    phase: int = TRAIN
    tops: tuple[int, ...] | None = None
    batch: bool = True
    label: str = ""

    def inputs(self) -> list[np.ndarray]:
        """The bottoms' data."""
        return [spread(b, seed=i) if isinstance(b, tuple) else np.asarray(b, float) for i, b in enumerate(self.bottoms)]

    def rig(self, dtype: type = np.float64, kernels: ModuleType | None = None) -> Rig:
        """The layer on its bench."""
        return Rig(self.prototxt, self.inputs(), self.n_tops, self.in_place, self.phase, dtype, kernels)

    def propagate_down(self) -> list[bool]:
        """Which bottoms are asked for a gradient."""
        return [self.gradient is None or i in self.gradient for i in range(len(self.bottoms))]


def load_cases() -> tuple[dict[str, list[Case]], dict[str, str]]:
    """All of tests/layers/cases_*.py: layer type → gradient cases, and layer type → why it has no gradient."""
    cases: dict[str, list[Case]] = {}
    reasons: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        module = importlib.import_module(f"tests.layers.{path.stem}")
        for layer_type, more in module.CASES.items():
            cases.setdefault(layer_type, []).extend(more)
        reasons.update(module.NO_GRADIENT)
    return cases, reasons


def check_exhaustive(case: Case, step: float = STEP, tolerance: float = TOLERANCE) -> None:
    """Compare every element of the Jacobian, and its product with random weights.

    Raises AssertionError that names the input, its element and the output element that disagree most.
    """
    rig = case.rig()
    tops = [rig.forward()[i] for i in _active_tops(case, rig)]
    n_out = sum(t.size for t in tops)
    analytic = [np.stack(rows) for rows in zip(*[_gradients(case, rig, unit) for unit in np.eye(n_out)], strict=True)]
    weights = np.random.default_rng(7).normal(size=n_out)
    weighted = _gradients(case, rig, weights)
    for name, place, got, got_weighted in zip(*_inputs(case, rig), analytic, weighted, strict=True):
        expected = _numeric(case, rig, place, step)
        _compare(name, got, expected, tolerance)
        _compare(f"{name}, weighted sum", got_weighted[None], weights[None] @ expected, 10 * tolerance)


def check_direction(case: Case, step: float = STEP, tolerance: float = TOLERANCE) -> None:
    """Compare the derivative along one random direction of all inputs at once: for shapes too large to exhaust."""
    rig, rng = case.rig(), np.random.default_rng(11)
    n_out = sum(rig.forward()[i].size for i in _active_tops(case, rig))
    weights = rng.normal(size=n_out)
    _, places = _inputs(case, rig)
    directions = [rng.normal(size=place.size) for place in places]
    along = sum(float(g @ d) for g, d in zip(_gradients(case, rig, weights), directions, strict=True))
    sides = []
    for sign in (1, -1):
        for place, direction in zip(places, directions, strict=True):
            place.flat[...] = place.ravel() + sign * step * direction
        sides.append(weights @ _outputs(case, rig))
        for place, direction in zip(places, directions, strict=True):
            place.flat[...] = place.ravel() - sign * step * direction
    expected = (sides[0] - sides[1]) / (2 * step)
    assert abs(along - expected) <= tolerance * max(1.0, abs(along)), f"along a direction: {along} against {expected}"


def _active_tops(case: Case, rig: Rig) -> Sequence[int]:
    return range(len(rig.top)) if case.tops is None else case.tops


def _inputs(case: Case, rig: Rig) -> tuple[list[str], list[np.ndarray]]:
    """Names and writable arrays of everything with a gradient: bottoms first, then parameters."""
    named = [(f"bottom {i}", rig.inputs[i]) for i, wanted in enumerate(case.propagate_down()) if wanted]
    params = range(len(rig.layer.blobs)) if case.params is None else case.params
    named += [(f"parameter {i}", rig.layer.blobs[i].data) for i in params]
    return [n for n, _ in named], [a for _, a in named]


def _outputs(case: Case, rig: Rig) -> np.ndarray:
    tops = rig.forward()
    return np.concatenate([tops[i].ravel() for i in _active_tops(case, rig)])


def _gradients(case: Case, rig: Rig, weights: np.ndarray) -> list[np.ndarray]:
    """Backward from these weights on the output elements: flat gradients in the order of ``_inputs``."""
    diffs = [np.zeros(blob.shape) for blob in rig.top]
    start = 0
    for i in _active_tops(case, rig):
        diffs[i] = weights[start : start + diffs[i].size].reshape(diffs[i].shape)
        start += diffs[i].size
    bottoms, params = rig.backward(diffs, case.propagate_down())
    chosen = [g for g, wanted in zip(bottoms, case.propagate_down(), strict=True) if wanted]
    chosen += [params[i] for i in (range(len(params)) if case.params is None else case.params)]
    return [g.ravel() for g in chosen]


def _numeric(case: Case, rig: Rig, place: np.ndarray, step: float) -> np.ndarray:
    """(output elements, elements of place): two-sided differences."""
    columns = []
    for index in np.ndindex(place.shape):
        kept = float(place[index])  # CuPy gives a view
        sides = []
        for value in (kept + step, kept - step):
            place[index] = value
            sides.append(_outputs(case, rig))
        place[index] = kept
        columns.append((sides[0] - sides[1]) / (2 * step))
    return np.stack(columns, axis=1)


def _compare(name: str, got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    error = np.abs(got - expected) / np.maximum(1.0, np.maximum(np.abs(got), np.abs(expected)))
    out, at = np.unravel_index(np.argmax(error), error.shape)
    assert error[out, at] <= tolerance, (
        f"{name}, element {at} by output element {out}: gradient {got[out, at]}, by differences {expected[out, at]}")


def all_cases(kind: dict[str, list[Case]]) -> Iterator[tuple[str, Case]]:
    """(test name, case) of a table."""
    for layer_type, cases in kind.items():
        for number, case in enumerate(cases):
            yield f"{layer_type}-{number} {case.label}".strip(), case
