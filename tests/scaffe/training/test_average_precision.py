"""Average precision against SSD's loops, in closed form, and over what several batches say."""

from types import SimpleNamespace

import numpy as np
import pytest

from scaffe.collectives import Communicator
from scaffe.errors import UserError
from scaffe.proto import caffe_pb2
from scaffe.training.observers.test import VERSIONS, average_precision, check_version, class_precisions, detected
from tests.reference import detection as reference


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_against_the_loops(version, n, share):
    rng = np.random.default_rng(n)
    scores, hits = rng.random(n), (rng.random(n) < share).astype(int)
    for n_positive in (max(1, hits.sum()), hits.sum() + 3):
        expected = reference.average_precision(scores.tolist(), hits.tolist(), n_positive, version)
        assert average_precision(scores, hits, n_positive, version) == pytest.approx(expected, abs=1e-9)


def test_closed_forms():
    """Right, wrong, right of two: precisions 1, 1/2, 2/3 at recalls 1/2, 1/2, 1."""
    scores, hits = np.array([0.3, 0.9, 0.6]), np.array([1, 1, 0])
    assert average_precision(scores, hits, 2, "Integral") == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert average_precision(scores, hits, 2, "MaxIntegral") == pytest.approx(0.5 + 0.5 * 2 / 3)
    assert average_precision(scores, hits, 2, "11point") == pytest.approx((6 + 5 * 2 / 3) / 11)
    later = np.array([0.9, 0.8, 0.7, 0.6])  # right, wrong, right, right: precisions 1, 1/2, 2/3, 3/4
    assert average_precision(later, np.array([1, 0, 1, 1]), 3, "Integral") == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert average_precision(later, np.array([1, 0, 1, 1]), 3, "MaxIntegral") == pytest.approx((1 + 3 / 4 + 3 / 4) / 3)


def test_the_solver_says_how_it_is_computed_and_whether_classes_are_told():
    """Two of three are found and nothing else: precision 1 up to recall 2/3, which holds 7 of the 11 points."""
    rows = np.array([[-1, 1, 3, -1, -1], [-1, 2, 1, -1, -1], [0, 1, 0.9, 1, 0], [0, 1, 0.7, 1, 0]])
    net = SimpleNamespace(outputs=lambda: [("eval", SimpleNamespace(data=rows), 0)],
                          context=SimpleNamespace(kernels=SimpleNamespace(to_host=np.asarray)))
    param = caffe_pb2.SolverParameter(ap_version="11point", show_per_class_result=True)
    solver = SimpleNamespace(communicator=Communicator.single(), param=param, test_forward=lambda net: 0,
                             mean_over_ranks=lambda values, *_: values)
    _, lines, means = detected(solver, net, 1)
    assert lines == ["class1: 0.636364", "class2: 0", "    Test net output #0: eval = 0.318182"]
    assert means == {"eval": pytest.approx(7 / 22)}
    param.ap_version, param.show_per_class_result = "Integral", False
    assert detected(solver, net, 1)[1] == ["    Test net output #0: eval = 0.333333"]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_found_or_nothing_to_find(version):
    assert average_precision(np.zeros(0), np.zeros(0), 3, version) == 0
    assert average_precision(np.ones(2), np.zeros(2), 0, version) == 0
    assert average_precision(np.array([0.5, 0.4]), np.ones(2), 2, version) == 1


def test_classes_over_batches():
    """Counts add up, what is neither right nor wrong does not count, a class without detections has 0."""
    rows = np.array([[-1, 1, 2, -1, -1], [-1, 2, 1, -1, -1], [0, 1, 0.9, 1, 0], [0, 1, 0.8, 0, 0],
                     [-1, 1, 1, -1, -1], [-1, 2, 0, -1, -1], [0, 1, 0.7, 1, 0]])
    assert class_precisions(rows, "Integral") == {1: pytest.approx(2 / 3), 2: 0}


def test_an_unknown_version_is_told():
    with pytest.raises(UserError, match="'12point' is unknown; known: 11point"):
        check_version("12point")
