"""Which call ranks are said to have made differently (the exchange between ranks is in test_mpi)."""

from scaffe.collectives.runtime.mismatch import MismatchDetector, difference


def test_the_first_call_that_differs_is_named():
    own = {1: "a", 2: "b", 3: "c"}
    told = {2: {2: "b", 3: "x"}, 1: {1: "a", 2: "y", 3: "z"}}
    assert difference(own, told) == "ranks disagree: rank 0 has b, rank 1 has y"


def test_calls_that_only_one_side_has_made_or_kept_are_not_compared():
    assert difference({5: "a"}, {1: {4: "b", 5: "a", 6: "c"}}) == ""
    assert difference({}, {3: {1: "a"}}) == ""
    assert difference({1: "a"}, {}) == ""


def test_without_threads_nothing_is_exchanged():
    detector = MismatchDetector(None, lambda line: None)
    for number in range(3000):
        detector.record(number)
    detector.check(), detector.await_comparison()
