"""The soak of losses counts like with like, and goes on where it was stopped."""

import json

import pytest

from tests.soak.loss_log import UNDISTURBED, Log, Outcome
from tests.soak.loss_table import rows


def test_a_log_goes_on(tmp_path):
    path = tmp_path / "kills.jsonl"
    for number in range(2):
        log = Log(str(path))
        assert (log.n_killed("ssp", 4), log.n_disturbed("ssp", 4)) == (3 * number, number)
        assert log.n_of("ssp", 4, UNDISTURBED) == number
        log.note("ssp", 4, UNDISTURBED, Outcome(accuracies=[0.8]))
        log.note("ssp", 4, "any", Outcome(3, wrong=["hangs"]), str(tmp_path / "kept"))
    assert [json.loads(line) for line in path.read_text().splitlines()] == log.runs
    assert (tmp_path / "kept").exists()


@pytest.mark.parametrize(("strategy", "n_below"), [("ssp", 1), ("sc-b", 2)])
def test_accuracies_are_compared_on_the_same_nodes(tmp_path, strategy, n_below):
    """Undisturbed 0.80 +- 0.01, on two nodes 0.50 +- 0.01, which matters to ssp alone."""
    log = Log("")
    for kind, middle in ((UNDISTURBED, 0.8), (f"{UNDISTURBED} node", 0.5)):
        for accuracy in (middle - 0.01, middle, middle + 0.01):
            log.note(strategy, 4, kind, Outcome(accuracies=[accuracy]))
    for kind, accuracy in (("any", 0.78), ("any", 0.76), ("node", 0.48)):
        log.note(strategy, 4, kind, Outcome(2, seconds=[0.5], accuracies=[accuracy]))
    row, = rows(log.runs)
    assert row.startswith(f"| `{strategy}` | 4 | 3 | 6 | 0 | 3 | 0 | 0 | 0 | 0.50 (0.50) |")
    assert row.endswith(f" | {n_below} |")
