"""Ranks that train in limited memory go on without one that is killed, or say that they cannot."""

import re

import numpy as np
import pytest

from tests.scaffe.training.fault_tolerance.runs import make, train, weights

pytestmark = [pytest.mark.mpi_job, pytest.mark.thorough]


@pytest.mark.parametrize(("strategy", "victim", "spare", "tolerates_rank_loss"), [
    ("sc-obr", "2:6", 0.01, True), ("sc-rs", "0:6", 0.05, True),
    ("sc-rs", "0:6", 0.01, False)])  # the three that are left have more of the history each
def test_ranks_go_on_in_limited_memory(tmp_path, databases, strategy, victim, spare, tolerates_rank_loss):
    def run(name, doomed, *flags, n_ranks=1):
        folder = make(tmp_path / name, databases, doomed)
        net = folder / "net.prototxt"
        net.write_text(net.read_text().replace("num_output: 24", "num_output: 12000"))
        return folder, train(folder, *flags, n_ranks=n_ranks)

    def least(text):
        return int(re.search(r"trains in ([\d,]+) at least", text)[1].replace(",", ""))

    flags = ("-strategy", strategy, "-on_rank_loss", "shrink", "-memory")
    _, refused = run("refused", "", *flags, "1KB", n_ranks=4)
    limit = int(least(refused.stderr) * (1 + spare))
    folder, result = run("limited", victim, *flags, str(limit), n_ranks=4)
    if not tolerates_rank_loss:
        assert result.returncode == 1
        assert least(result.stderr) > limit
        assert len(re.findall("^scaffe: -memory ", result.stderr, re.MULTILINE)) == 1, result.stderr
        return
    assert result.returncode == 0, result.stderr
    assert re.findall(r"; (\d) go on", result.stderr) == ["3"], result.stderr
    moved = re.findall(r"Memory: .* do not move; keep \d+, move (\d+)", result.stderr)
    assert len(moved) == 2 and int(moved[0]) > 0, result.stderr
    alone, undisturbed = run("alone", "")
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert np.linalg.norm(weights(folder) - weights(alone)) < 2e-3 * np.linalg.norm(weights(alone))
