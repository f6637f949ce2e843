"""`make bench-gpu-ranks`'s script on the pretend CuPy: it measures, compares, ends what is late, says what failed."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests import pretend
from tests.collectives.test_mpi import job
from tests.scaffe.runs import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu_ranks  # noqa: E402
from gpu_parts.hidden import Parts  # noqa: E402
from gpu_parts.mps import CONTROL, mps  # noqa: E402

CUPY = ROOT / "tests" / "pretend" / "path"


def bench(folder, *words):
    """A run's parts, on one rank."""
    options = gpu_ranks.flags().parse_args(["--nodes", "0", "--json", str(folder / "rows.json"), *words])
    return gpu_ranks.Bench(options, folder, {})


def test_the_bars_are_ratios_of_images_a_second_and_shares_that_are_hidden():
    rates = {"sc-b:mpi": 1000.0, "sc-obr:CB-node": 1300.0, "sc-rs:auto": 1200.0, "ddp:gloo": 650.0}
    rows = {way: {"images_per_second": rate} for way, rate in rates.items()}
    rows["sc-obr:CB-node"]["share_hidden"], rows["sc-rs:auto"]["share_hidden"] = 0.79, 0.8
    found = [(each["way"], each["is"], round(each["reached"], 2), each["bar"], each["met"])
             for each in gpu_ranks.verdicts(rows)]
    assert found == [("sc-obr:CB-node", "times sc-b:mpi", 1.3, 1.25, True),
                     ("sc-rs:auto", "times sc-obr:CB-node", 0.92, 1.0, False),
                     ("sc-obr:CB-node", "times ddp:gloo", 2.0, 1.3, True),
                     ("sc-obr:CB-node", "of what can be hidden", 0.79, 0.8, False),
                     ("sc-rs:auto", "of what can be hidden", 0.8, 0.8, True)]
    assert gpu_ranks.verdicts({"sc-rs:auto": {"images_per_second": 1.0}}) == []


def test_what_can_be_hidden_is_what_the_layers_are_long_enough_for():
    parts = Parts(forward=1.0, backward=2.0, parameters=1.5, gradients=0.5, update=0.25)
    assert parts.hideable == 1.0 + 0.5
    assert parts.hidden(5.25) == 0.0  # one after another
    assert parts.hidden(4.25) == 1.0
    assert parts.hidden(6.0) == 0.0
    assert parts.hidden(3.0) == 2.0  # no more than there is
    assert parts.row(4.25)["share_hidden"] == 1.0 / 1.5
    assert parts.row(4.25)["messages_milliseconds"] == 2000.0
    assert "share_hidden" not in Parts(1.0, 2.0, 0.0, 0.0, 0.1).row(3.1)  # a rank alone


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


@pytest.mark.parametrize(("version", "ways"), [(22907, []), (23100, list(gpu_ranks.BY_NCCL))])
def test_nccl_carries_where_it_shares_a_card(tmp_path, monkeypatch, version, ways):
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy/__init__.py").touch()
    (tmp_path / "cupy/cuda.py").write_text(f"class nccl:\n    get_version = lambda: {version}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = bench(tmp_path)
    assert found._by_nccl() == ways
    assert [row["said"] for row in found.rows] == [f"no NCCL of 23100 or later: {version}"] * (not ways)


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
    about, no_nccl, *rows = json.loads(file.read_text())
    assert (about["part"], no_nccl["part"]) == ("mps", "nccl")
    assert [(row["part"], row["way"]) for row in rows] == [("lenet", "sc-b:auto"), ("lenet", "sc-rs:auto")]
    assert all(row["images_per_second"] > 0 for row in rows)
    for way in ("sc-b.auto", "sc-rs.auto"):
        spans = json.loads((tmp_path / "timelines" / f"lenet.{way}.json").read_text())["traceEvents"]
        assert "data data" in {span["name"] for span in spans}  # it reads
        assert (tmp_path / "timelines" / f"lenet.{way}.svg").read_text().startswith("<svg")


@pretend.needs_compiler
@pytest.mark.mpi_job
def test_two_ranks_measure_the_parts_of_an_iteration():
    result = job(2, ["benchmarks/gpu_parts/ranks.py", "lenet", "sc-b:M", "sc-obr:M", "sc-rs:nccl", "--batch", "4",
                     "--precision", "fp32", "--steps", "2"], timeout=150, PRETEND_GPUS="2",
                 PYTHONPATH=os.pathsep.join([str(ROOT), str(CUPY)]))
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["way"], row["ranks"]) for row in rows] == [("sc-b:M", 2), ("sc-obr:M", 2), ("sc-rs:nccl", 2)]
    for row in rows:
        assert 0 < row["hideable_milliseconds"] <= row["messages_milliseconds"]
        assert 0 <= row["hidden_milliseconds"] <= row["messages_milliseconds"]
        assert row["share_hidden"] == pytest.approx(row["hidden_milliseconds"] / row["hideable_milliseconds"])
        assert min(row[f"{part}_milliseconds"] for part in ("forward", "backward", "update")) > 0
