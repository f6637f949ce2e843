"""`make bench-gpu-ranks`'s script on the pretend CuPy: it measures, compares, ends what is late, says what failed."""

import json
import os
import subprocess
import sys
import time

from tests import pretend
from tests.scaffe.runs import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu_ranks  # noqa: E402
from gpu_parts.mps import CONTROL, mps  # noqa: E402

CUPY = ROOT / "tests" / "pretend" / "path"


def bench(folder, *words):
    """A run's parts, on one rank."""
    options = gpu_ranks.flags().parse_args(["--nodes", "0", "--json", str(folder / "rows.json"), *words])
    return gpu_ranks.Bench(options, folder, {})


def test_the_bars_are_ratios_of_images_a_second():
    rates = {"sc-b:mpi": 1000.0, "sc-obr:CB-node": 1300.0, "sc-rs:auto": 1200.0, "ddp:gloo": 650.0}
    assert gpu_ranks.verdicts(rates) == ["sc-obr:CB-node is 1.30 times sc-b:mpi: meets 1.25",
                                         "sc-rs:auto is 0.92 times sc-obr:CB-node: misses 1",
                                         "sc-obr:CB-node is 2.00 times ddp:gloo: meets 1.3"]
    assert gpu_ranks.verdicts({"sc-rs:auto": 1.0}) == []


def test_all_ways_run_in_one_job_on_the_nodes(tmp_path):
    words = bench(tmp_path, "--nodes", "4", "--rate", "1gbit").on_nodes(["python", "script.py"])
    assert words[0].endswith("jobs/cluster.sh")
    assert words[1:] == ["4", "1gbit", "--", "python", "script.py"]
    assert bench(tmp_path).on_nodes(["python"]) == ["python"]


LATE = """
import sys, time
print('{"way": "first", "images_per_second": 5}', flush=True)
time.sleep(600)
"""


def test_what_is_late_is_ended_and_its_rows_are_kept(tmp_path):
    late = bench(tmp_path)
    rows = list(late._run([sys.executable, "-c", LATE], time.monotonic() + 3))
    assert rows == [{"way": "first", "images_per_second": 5}, {"error": "was ended after 3 s"}]


def test_no_part_outlasts_all_of_them(tmp_path):
    left = bench(tmp_path, "--seconds", "20")._until() - time.monotonic()
    assert 0 < left <= 20
    assert 20 < bench(tmp_path)._until() - time.monotonic() <= 180


def test_a_command_that_fails_says_why_in_a_row(tmp_path):
    words = [sys.executable, "-c", "raise SystemExit('no card')"]
    assert list(bench(tmp_path)._run(words, time.monotonic() + 60)) == [{"error": "no card"}]


def fake_control(folder, monkeypatch, start=0, use=0):
    """A control program that writes down what it is told."""
    script = folder / CONTROL
    script.write_text(f"""#!/bin/sh
echo "$* $(cat) $CUDA_MPS_PIPE_DIRECTORY" >> {folder}/told
[ "$1" != -d ] || exit {start}
""")
    script.chmod(0o755)
    (folder / "cupy.py").write_text(f"if {use}:\n    raise SystemExit({use})\ndef arange(n):\n"
                                    "    class Sum:\n        def sum(self): return 3\n    return Sum()\n")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder / "told"


def test_mps_is_started_used_and_ended(tmp_path, monkeypatch):
    told = fake_control(tmp_path, monkeypatch)
    with mps() as (places, why):
        folder = places["CUDA_MPS_PIPE_DIRECTORY"]
        assert told.read_text().split() == ["-d", folder]
        assert why == ""
    assert told.read_text().split() == ["-d", folder, "quit", folder]


def test_mps_that_does_not_start_says_so(tmp_path, monkeypatch):
    told = fake_control(tmp_path, monkeypatch, start=3)
    with mps() as (places, why):
        assert (places, why) == ({}, f"{CONTROL} ends with code 3: it says nothing")
    assert len(told.read_text().splitlines()) == 1  # there is nothing to end


def test_mps_under_which_nothing_computes_is_ended(tmp_path, monkeypatch):
    told = fake_control(tmp_path, monkeypatch, use=7)
    with mps() as (places, why):
        assert places == {}
        assert "ends with code 7" in why
    assert "quit" in told.read_text()


def test_no_mps_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with mps() as found:
        assert found == ({}, f"no {CONTROL} on PATH")


@pretend.needs_compiler
def test_it_measures_a_net_from_records_and_draws_its_timelines(tmp_path):
    file = tmp_path / "ranks.json"
    flags = ["--parts", "lenet", "--nodes", "0", "--batch", "4", "--steps", "1", "--precision", "fp32",
             "--ways", "sc-b:auto,sc-rs:auto", "--timelines", str(tmp_path / "timelines")]
    done = subprocess.run([sys.executable, "benchmarks/gpu_ranks.py", "--json", str(file), *flags], cwd=ROOT,
                          capture_output=True, text=True, timeout=150, check=False,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(CUPY)])})
    assert done.returncode == 0, done.stdout + done.stderr
    about, *rows = json.loads(file.read_text())
    assert about["part"] == "mps"
    assert [(row["part"], row["way"]) for row in rows] == [("lenet", "sc-b:auto"), ("lenet", "sc-rs:auto")]
    assert all(row["images_per_second"] > 0 for row in rows)
    for way in ("sc-b.auto", "sc-rs.auto"):
        spans = json.loads((tmp_path / "timelines" / f"lenet.{way}.json").read_text())["traceEvents"]
        assert "data data" in {span["name"] for span in spans}  # it reads
        assert (tmp_path / "timelines" / f"lenet.{way}.svg").read_text().startswith("<svg")
