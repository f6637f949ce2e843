"""Lost ranks are replaced by new ones, and training ends with the weights of a run that nobody disturbed."""

import re

import numpy as np
import pytest

from tests.scaffe.training.fault_tolerance.runs import N_ITERATIONS, make, train, weights

pytestmark = pytest.mark.mpi_job


@pytest.mark.parametrize(("flags", "victims"), [
    (("-strategy", "sc-rs"), "0:4,2:4"),  # two at once, the root among them: two come, one after another
    # the root, after it has started one and that one has come
    pytest.param(("-strategy", "sc-obr"), "1:4,0:8", marks=pytest.mark.thorough),
    pytest.param(("-strategy", "ssp", "-slack", "0"), "2:5", marks=pytest.mark.thorough),
])
def test_new_ranks_come_and_the_weights_are_those_of_one_undisturbed_rank(tmp_path, databases, undisturbed, flags,
                                                                          victims):
    result = train(make(tmp_path, databases, victims), *flags, "-on_rank_loss", "replace", n_ranks=4)
    assert result.returncode == 0, result.stderr
    assert "Optimization Done" in result.stderr
    came = re.findall(r"New ranks have come in after iteration \d+: (\d) train on", result.stderr)
    assert came == {"0:4,2:4": ["3", "4"]}.get(victims, ["4"] * len(victims.split(","))), result.stderr
    assert re.findall(r"Training on (\d)", result.stderr)[-1] == "4"
    np.testing.assert_allclose(weights(tmp_path), undisturbed, rtol=2e-3, atol=2e-6)
    shown = {int(number) for number in re.findall(r"Iteration (\d+) \(", result.stderr)}
    assert shown == set(range(N_ITERATIONS))


def test_where_nobody_can_be_started_the_others_go_on(tmp_path, databases, undisturbed):
    full = {"PRTE_MCA_rmaps_default_mapping_policy": ":nooversubscribe"}
    result = train(make(tmp_path, databases, "1:4"), "-strategy", "sc-b", "-on_rank_loss", "replace", n_ranks=2,
                   options=("--host", "localhost:2"), **full)
    assert "Optimization Done" in result.stderr  # the launcher's exit code is not 0: it could not start a process
    assert "Ranks that were started for lost ones have not joined: the launcher starts none; has" in result.stderr
    assert "No more ranks are started for lost ones: that has failed 3 times" in result.stderr
    np.testing.assert_allclose(weights(tmp_path), undisturbed, rtol=2e-3, atol=2e-6)
