"""Some of the trials of tests.layers.extremes, in a process of their own: options at the ends of their types."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("every", [3 * 293, *(pytest.param(n, marks=pytest.mark.thorough) for n in (293, 97))])
def test_options_at_the_ends_of_their_types(every: int) -> None:
    run("--every", str(every))


@pytest.mark.parametrize("every", [151, pytest.param(17, marks=pytest.mark.thorough)])
def test_shapes_that_nobody_means(every: int) -> None:
    run("--shapes", "--every", str(every))


def run(*flags: str) -> None:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-m", "tests.layers.extremes", *flags],
                          capture_output=True, text=True, timeout=300)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert done.returncode == 0, "\n".join([*failed, *done.stdout.splitlines()[-1:], done.stderr[-2000:]])


def test_bottoms_without_elements_where_something_is_divided_by_their_number() -> None:
    types = ["Slice", "Reduction", "ArgMax", "EuclideanLoss", "HingeLoss", "MultinomialLogisticLoss"]
    run(*types)
