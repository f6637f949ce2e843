"""`make bench-gpu-ranks`'s script on the pretend CuPy: it measures, compares, and says what failed."""

import argparse
import json
import os
import subprocess
import sys

from tests import pretend
from tests.scaffe.runs import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu_ranks  # noqa: E402


def test_the_bars_are_ratios_of_images_a_second():
    rates = {"sc-b:mpi": 1000.0, "sc-obr:CB-node": 1300.0, "sc-rs:auto": 1200.0}
    assert gpu_ranks.verdicts(rates) == ["sc-obr:CB-node is 1.30 times sc-b:mpi: meets 1.25",
                                         "sc-rs:auto is 0.92 times sc-obr:CB-node: misses 1"]
    assert gpu_ranks.verdicts({"sc-rs:auto": 1.0}) == []


def test_all_ways_run_in_one_job_on_the_nodes():
    options = argparse.Namespace(ways="sc-b:mpi,sc-rs:auto", batch=64, precision="bf16", steps=3, nodes=4, rate="1gbit")
    words = gpu_ranks.command("caffenet", options)
    assert words[0].endswith("jobs/cluster.sh")
    assert words[1:4] == ["4", "1gbit", "--"]
    assert words[5].endswith("gpu_parts/ranks.py")
    assert words[6:9] == ["caffenet", "sc-b:mpi", "sc-rs:auto"]


@pretend.needs_compiler
def test_it_measures_a_net(tmp_path):
    file, cupy = tmp_path / "ranks.json", ROOT / "tests" / "pretend" / "path"
    flags = ["--parts", "lenet", "--nodes", "0", "--batch", "4", "--steps", "1", "--precision", "fp32",
             "--ways", "sc-b:auto,sc-rs:auto"]
    done = subprocess.run([sys.executable, "benchmarks/gpu_ranks.py", "--json", str(file), *flags], cwd=ROOT,
                          capture_output=True, text=True, timeout=150, check=False,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(cupy)])})
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())["lenet"]
    assert [row["way"] for row in rows] == ["sc-b:auto", "sc-rs:auto"]
    assert all(row["images_per_second"] > 0 for row in rows)
