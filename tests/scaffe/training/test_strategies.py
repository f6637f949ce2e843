"""All strategies train a net with every awkward case alike: shared, frozen and in-place layers, two losses, BatchNorm's
statistics, Dropout, iter_size 2, clipping."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT

WORKER = Path(__file__).parent / "strategies_worker.py"


@pytest.mark.mpi_job
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_strategies_agree(n_ranks):
    done = subprocess.run([*mpirun(n_ranks), sys.executable, str(WORKER)], cwd=ROOT, capture_output=True,
                          text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    results = {tuple(r["run"]): r for r in json.loads(done.stdout)}
    by_root, by_all = (results.pop(run) for run in [run for run in results if len(run) == 4])
    for what in ("weights", "histories", "steps"):  # AdaGrad, whose histories of frozen layers change too
        np.testing.assert_allclose(by_all[what], by_root[what], rtol=2e-3, atol=2e-4, err_msg=what)
    np.testing.assert_array_equal(np.sign(by_all["histories"]), np.sign(by_root["histories"]))
    for algorithm in ("C", "CB-2"):
        hashes = {run: r["hash"] for run, r in results.items() if run[1] == algorithm}
        assert len(hashes) == 7
        assert len(set(hashes.values())) == 1, f"not byte-identical: {hashes}"
    base = np.array(results["sc-b", "C", 0]["weights"])
    assert np.abs(base).max() > 0.01
    halves = {r["hash"] for run, r in results.items() if run[1] == "C:bf16"}
    assert len(halves) == 1
    assert results["sc-b", "C:bf16", 500]["weights"] != results["sc-b", "C", 0]["weights"]
    for run, r in results.items():
        assert r["same"], f"{run}: after the last settle the ranks hold different parameters"
        if ":" in run[1]:  # gradients were rounded on their way
            assert np.linalg.norm(r["weights"] - base) < 0.05 * np.linalg.norm(base), run
        else:
            np.testing.assert_allclose(r["weights"], base, rtol=2e-3, atol=2e-4, err_msg=str(run))
